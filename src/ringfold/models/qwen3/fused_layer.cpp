// Legend: t local tokens, h hidden, d head dim, w width of the MLP.
#include "ringfold/models/qwen3/fused_layer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "ringfold/attention/attention.h"
#include "ringfold/base/error.h"
#include "ringfold/kernels/fused.h"
#include "ringfold/kernels/product.h"

namespace ringfold {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Whether each tensor begins where the one before ends, so that one matrix product serves all.
bool side_by_side(std::initializer_list<at::Tensor> parts) {
  const at::Tensor* before = nullptr;
  for (const at::Tensor& part : parts) {
    if (!part.is_contiguous()) return false;
    if (before != nullptr && static_cast<const char*>(before->const_data_ptr()) + before->nbytes() !=
                                 static_cast<const char*>(part.const_data_ptr())) {
      return false;
    }
    before = &part;
  }
  return true;
}

at::Tensor gradient_of(const at::Tensor& parameter) {
  RINGFOLD_ASSERT(parameter.grad().defined(), "gradients of fused layers go into FlatParameters");
  return parameter.grad();
}

struct LayerCall : torch::CustomClassHolder {
  LayerCall(const DenseModel& model_in, int layer_in, const at::Tensor& cos, const at::Tensor& sin,
            CpContextPtr context_in)
      : config(model_in.config()),
        weights(model_in.layer(layer_in)),
        layer(layer_in),
        cos_td(cos),
        sin_td(sin),
        context(std::move(context_in)) {}

  HeadShape shape() const { return {config.num_attention_heads, config.num_key_value_heads, config.head_dim}; }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(config.head_dim)); }
  fused::HeadNorm head_norm() const { return {weights.q_norm, weights.k_norm, config.rms_norm_eps}; }

  const ModelConfig& config;
  const DenseLayer& weights;
  int layer;
  at::Tensor cos_td, sin_td;
  CpContextPtr context;
};

// What the backward of a layer needs.
struct Kept {
  at::Tensor x_th, inverse_rms_t, qkv, out_thd, lse_ht;
  at::Tensor middle_th, middle_inverse_rms_t, gate_up;

  variable_list list() const {
    return {x_th, inverse_rms_t, qkv, out_thd, lse_ht, middle_th, middle_inverse_rms_t, gate_up};
  }
  static Kept of(const variable_list& l) { return {l[0], l[1], l[2], l[3], l[4], l[5], l[6], l[7]}; }
};

at::Tensor run_forward(const LayerCall& call, const at::Tensor& x_th, Phase phase, Kept& kept) {
  const DenseLayer& w = call.weights;
  const int64_t tokens = x_th.size(0);
  const fused::Normed normed = fused::rms_norm(x_th, w.input_norm, call.config.rms_norm_eps);
  const at::Tensor qkv = product(normed.y_nw, joined_rows({w.q, w.k, w.v}).t());
  const fused::Heads heads = fused::qkv_heads(qkv, call.shape(), call.head_norm(), call.cos_td, call.sin_td);
  const AttentionWithLse attended =
      cp_attention_forward(heads.q_thd, heads.k_tgd, heads.v_tgd, *call.context, call.layer, call.scale(), phase);
  const at::Tensor middle_th = product_plus(x_th, attended.out_thd.view({tokens, -1}), w.o.t());
  const fused::Normed middle = fused::rms_norm(middle_th, w.post_norm, call.config.rms_norm_eps);
  const at::Tensor gate_up = product(middle.y_nw, joined_rows({w.gate, w.up}).t());
  kept = {x_th, normed.inverse_rms_n, qkv, attended.out_thd, attended.lse_ht, middle_th, middle.inverse_rms_n, gate_up};
  return product_plus(middle_th, fused::swiglu(gate_up), w.down.t());
}

// Returns the gradient of the residual stream between attention and MLP.
at::Tensor mlp_backward(const LayerCall& call, const Kept& kept, const at::Tensor& dy_th) {
  const DenseLayer& w = call.weights;
  fused::SwigluGrads mlp = fused::swiglu_backward(product(dy_th, w.down), kept.gate_up);
  add_product(gradient_of(w.down), dy_th.t(), mlp.a_nw);
  mlp.a_nw.reset();
  const at::Tensor dnormed_th = product(mlp.dgate_up, joined_rows({w.gate, w.up}));
  const fused::NormGrads norm = fused::rms_norm_backward(
      dnormed_th, kept.middle_th, w.post_norm, kept.middle_inverse_rms_t, dy_th, gradient_of(w.post_norm), true);
  add_product(joined_rows({gradient_of(w.gate), gradient_of(w.up)}), mlp.dgate_up.t(), norm.y_nw);
  return norm.dx_nw;
}

// Returns the gradient of the layer's input.
at::Tensor attention_backward(const LayerCall& call, const Kept& kept, const at::Tensor& dmiddle_th) {
  const DenseLayer& w = call.weights;
  const int64_t tokens = dmiddle_th.size(0);
  add_product(gradient_of(w.o), dmiddle_th.t(), kept.out_thd.view({tokens, -1}));
  const at::Tensor dout_thd = product(dmiddle_th, w.o).view(kept.out_thd.sizes());
  const fused::HeadNorm norm = call.head_norm();
  const fused::Heads heads = fused::qkv_heads(kept.qkv, call.shape(), norm, call.cos_td, call.sin_td);
  const AttentionGrads dheads =
      cp_attention_backward(dout_thd, heads.q_thd, heads.k_tgd, heads.v_tgd, {kept.out_thd, kept.lse_ht}, *call.context,
                            call.layer, call.scale());
  fused::HeadNormGrads norm_grads;
  if (w.q_norm.defined()) norm_grads = {gradient_of(w.q_norm), gradient_of(w.k_norm)};
  const at::Tensor dqkv =
      fused::qkv_heads_backward({dheads.dq_thd.contiguous(), dheads.dk_sgd.contiguous(), dheads.dv_sgd.contiguous()},
                                kept.qkv, call.shape(), norm, call.cos_td, call.sin_td, norm_grads);
  const at::Tensor dnormed_th = product(dqkv, joined_rows({w.q, w.k, w.v}));
  const fused::NormGrads input = fused::rms_norm_backward(dnormed_th, kept.x_th, w.input_norm, kept.inverse_rms_t,
                                                          dmiddle_th, gradient_of(w.input_norm), true);
  add_product(joined_rows({gradient_of(w.q), gradient_of(w.k), gradient_of(w.v)}), dqkv.t(), input.y_nw);
  return input.dx_nw;
}

struct FusedLayer : torch::autograd::Function<FusedLayer> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_th, const c10::intrusive_ptr<LayerCall>& call,
                            bool recompute_all) {
    Kept kept;
    const at::Tensor y_th = run_forward(*call, x_th, Phase::kForward, kept);
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->save_for_backward(recompute_all ? variable_list{x_th} : kept.list());
    return y_th;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto capsule = ctx->saved_data["call"].toCapsule();
    const auto& call = static_cast<const LayerCall&>(*capsule);
    const variable_list saved = ctx->get_saved_variables();
    Kept kept;
    if (saved.size() == 1) {
      run_forward(call, saved[0], Phase::kRecompute, kept);
    } else {
      kept = Kept::of(saved);
    }
    const at::Tensor dmiddle_th = mlp_backward(call, kept, grads[0].contiguous());
    return {attention_backward(call, kept, dmiddle_th), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor joined_rows(std::initializer_list<at::Tensor> parts) {
  RINGFOLD_ASSERT(side_by_side(parts), "projections and their gradients lie side by side");
  int64_t rows = 0;
  for (const at::Tensor& part : parts) rows += part.size(0);
  const at::Tensor first = parts.begin()->detach();
  return first.as_strided({rows, first.size(1)}, {first.size(1), 1});
}

bool has_fused_layers(const DenseModel& model) {
  const ModelConfig& c = model.config();
  const at::Tensor& weight = model.head_weight();
  const DenseLayer& first = model.layer(0);
  return weight.is_cuda() && weight.scalar_type() != at::kDouble && !c.attention_bias && !c.mlp_bias &&
         c.hidden_size % 8 == 0 && c.intermediate_size % 8 == 0 &&
         (c.head_dim == 64 || c.head_dim == 128 || c.head_dim == 256) && side_by_side({first.q, first.k, first.v}) &&
         side_by_side({first.gate, first.up});
}

at::Tensor fused_layer(const DenseModel& model, int layer, const at::Tensor& x_th, const at::Tensor& cos_td,
                       const at::Tensor& sin_td, const CpContextPtr& context, bool recompute_all) {
  const auto call = c10::make_intrusive<LayerCall>(model, layer, cos_td, sin_td, context);
  if (at::GradMode::is_enabled()) return FusedLayer::apply(x_th, call, recompute_all);
  Kept kept;
  return run_forward(*call, x_th, Phase::kForward, kept);
}

}  // namespace ringfold
