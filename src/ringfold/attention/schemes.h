// The context-parallel schemes: how the keys and values of the other ranks come to this one, and how their gradients go
// home. Internal to attention/; steps and bytes in docs/algorithms_attention.md. Every member of the group makes the
// same call in the same order. A group of one touches no exchange.
#pragma once

#include "ringfold/attention/blocks.h"
#include "ringfold/mesh/exchange.h"

namespace ringfold::attention_detail {

// KV travels round the ring as one flat buffer; in the backward the dKV sums travel with it and arrive home last.
AttentionBlock ring_forward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                            const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd);
AttentionGrads ring_backward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                             const ForwardState& state);

// KV of all ranks is gathered at once, forward and again backward; dKV goes home by reduce-scatter.
AttentionBlock all_gather_kv_forward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                                     const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd);
AttentionGrads all_gather_kv_backward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                                      const ForwardState& state);

// Ulysses (DeepSpeed: Jacobs et al. 2023, arXiv:2309.14509): one exchange brings this rank its share of the heads for
// all rows, another takes the results home. h % c == 0; g % c == 0, or c % g == 0 and a KV head goes to c / g ranks.
AttentionBlock all_to_all_forward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                                  const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd);
AttentionGrads all_to_all_backward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                                   const ForwardState& state);

}  // namespace ringfold::attention_detail
