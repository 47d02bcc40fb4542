#include "ringfold/models/qwen3/recompute.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace ringfold {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What the backward needs besides tensors.
struct LayerCall : torch::CustomClassHolder {
  LayerCall(const DenseModel& model_in, int layer_in, CpContextPtr context_in)
      : model(model_in), layer(layer_in), context(std::move(context_in)) {}
  const DenseModel& model;
  int layer;
  CpContextPtr context;
};

struct RecomputedLayer : torch::autograd::Function<RecomputedLayer> {
  // The parameters are inputs only so that autograd routes their gradients; the model holds the same tensors.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_th, const at::Tensor& cos_td,
                            const at::Tensor& sin_td, const c10::intrusive_ptr<LayerCall>& call,
                            at::TensorList parameters) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->saved_data["parameters"] = static_cast<int64_t>(parameters.size());
    ctx->save_for_backward({x_th, cos_td, sin_td});
    return call->model.layer_forward(call->layer, x_th, cos_td, sin_td, call->context, Phase::kForward);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto capsule = ctx->saved_data["call"].toCapsule();
    const auto& call = static_cast<const LayerCall&>(*capsule);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor x_th = saved[0].detach().requires_grad_();
    variable_list inputs = {x_th};
    for (const at::Tensor& parameter : call.model.layer_parameters(call.layer)) inputs.push_back(parameter);

    at::AutoGradMode grad_mode(true);
    const at::Tensor y_th =
        call.model.layer_forward(call.layer, x_th, saved[1], saved[2], call.context, Phase::kRecompute);
    const variable_list found = torch::autograd::grad({y_th}, inputs, {grads[0]});
    // Order of forward's arguments: x, cos, sin, call, parameters.
    variable_list result = {found[0], at::Tensor(), at::Tensor(), at::Tensor()};
    result.insert(result.end(), found.begin() + 1, found.end());
    return result;
  }
};

}  // namespace

at::Tensor recomputed_layer(const DenseModel& model, int layer, const at::Tensor& x_th, const at::Tensor& cos_td,
                            const at::Tensor& sin_td, const CpContextPtr& context) {
  const std::vector<at::Tensor> parameters = model.layer_parameters(layer);
  return RecomputedLayer::apply(x_th, cos_td, sin_td, c10::make_intrusive<LayerCall>(model, layer, context),
                                at::TensorList(parameters));
}

}  // namespace ringfold
