#include "ringfold/attention/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ringfold/attention/blocks.h"
#include "ringfold/attention/schemes.h"
#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using attention_detail::AttentionCall;
using attention_detail::ForwardState;

void check_call(const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd, const CpContext& context) {
  const PackLayout& layout = context.layout;
  RINGFOLD_ASSERT(context.group.size == layout.size() && context.group.index == layout.index(),
                  "group and layout of a context agree");
  RINGFOLD_ASSERT(context.group.is_single() || context.exchange != nullptr, "a group of several has an exchange");
  RINGFOLD_ASSERT(q_thd.dim() == 3 && k_tgd.dim() == 3 && k_tgd.sizes() == v_tgd.sizes(),
                  "q, k and v are (tokens, heads, head dim)");
  RINGFOLD_ASSERT(q_thd.size(0) == layout.local_tokens() && k_tgd.size(0) == layout.local_tokens(),
                  "q, k and v hold the rows of this rank");
  RINGFOLD_ASSERT(q_thd.size(1) % k_tgd.size(1) == 0 && q_thd.size(2) == k_tgd.size(2),
                  "each KV head serves as many query heads");
}

struct Scheme {
  decltype(&attention_detail::ring_forward) forward;
  decltype(&attention_detail::ring_backward) backward;
};

Scheme scheme_of(const CpContext& context) {
  using namespace attention_detail;
  switch (context.scheme) {
    case CpScheme::kRing:
      return {ring_forward, ring_backward};
    case CpScheme::kAllGatherKv:
      return {all_gather_kv_forward, all_gather_kv_backward};
    case CpScheme::kAllToAll:
      return {all_to_all_forward, all_to_all_backward};
  }
  RINGFOLD_ASSERT(false, "every scheme is listed");
  return {};
}

// A group of one: each sample's causal attention, no exchange.
AttentionBlock forward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                       const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd) {
  check_call(q_thd, k_tgd, v_tgd, context);
  if (context.group.is_single()) {
    return attention_detail::attend_alone(call, context, q_thd, k_tgd, v_tgd);
  }
  AttentionBlock result = scheme_of(context).forward(context, call, key, q_thd, k_tgd, v_tgd);
  result.out_thd = result.out_thd.to(q_thd.scalar_type());
  return result;
}

AttentionGrads backward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                        const ForwardState& state) {
  if (context.group.is_single()) {
    return attention_detail::attend_alone_backward(call, context, state);
  }
  const AttentionGrads grads = scheme_of(context).backward(context, call, key, state);
  const auto type = state.q_thd.scalar_type();
  return {grads.dq_thd.to(type), grads.dk_sgd.to(type), grads.dv_sgd.to(type)};
}

// What the autograd node keeps besides tensors: above all the context, so that the backward meets the same group.
struct NodeState : torch::CustomClassHolder {
  NodeState(CpContextPtr context_in, int layer_in, double scale_in)
      : context(std::move(context_in)), layer(layer_in), call{context->kernel, scale_in} {}

  ExchangeKey key(Phase phase) const { return {context->step, context->micro_step, layer, phase}; }

  CpContextPtr context;
  int layer;
  AttentionCall call;
};
using NodeStatePtr = c10::intrusive_ptr<NodeState>;

struct CpAttention : torch::autograd::Function<CpAttention> {
  static at::Tensor forward(torch::autograd::AutogradContext* node, const at::Tensor& q_thd, const at::Tensor& k_tgd,
                            const at::Tensor& v_tgd, const NodeStatePtr& state, Phase phase) {
    const AttentionBlock result =
        ringfold::forward(*state->context, state->call, state->key(phase), q_thd, k_tgd, v_tgd);
    node->save_for_backward({q_thd, k_tgd, v_tgd, result.out_thd, result.lse_ht});
    node->saved_data["state"] = c10::IValue::make_capsule(state);
    return result.out_thd;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* node,
                                                 const torch::autograd::variable_list& grad_outputs) {
    const torch::autograd::variable_list saved = node->get_saved_variables();
    const auto state = c10::static_intrusive_pointer_cast<NodeState>(node->saved_data["state"].toCapsule());
    const ForwardState forward_state{saved[0], saved[1], saved[2], {saved[3], saved[4]}, grad_outputs[0].contiguous()};
    const AttentionGrads grads =
        ringfold::backward(*state->context, state->call, state->key(Phase::kBackward), forward_state);
    return {grads.dq_thd, grads.dk_sgd, grads.dv_sgd, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor cp_attention(const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd,
                        const CpContextPtr& context, int layer, double scale, Phase phase) {
  return CpAttention::apply(q_thd, k_tgd, v_tgd, c10::make_intrusive<NodeState>(context, layer, scale), phase);
}

AttentionWithLse cp_attention_forward(const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd,
                                      const CpContext& context, int layer, double scale, Phase phase) {
  const at::NoGradGuard no_grad;
  const ExchangeKey key{context.step, context.micro_step, layer, phase};
  const AttentionBlock result = forward(context, {context.kernel, scale}, key, q_thd, k_tgd, v_tgd);
  return {result.out_thd, result.lse_ht};
}

AttentionGrads cp_attention_backward(const at::Tensor& dout_thd, const at::Tensor& q_thd, const at::Tensor& k_tgd,
                                     const at::Tensor& v_tgd, const AttentionWithLse& result, const CpContext& context,
                                     int layer, double scale) {
  const at::NoGradGuard no_grad;
  const ExchangeKey key{context.step, context.micro_step, layer, Phase::kBackward};
  return backward(context, {context.kernel, scale}, key,
                  {q_thd, k_tgd, v_tgd, {result.out_thd, result.lse_ht}, dout_thd.contiguous()});
}

}  // namespace ringfold
