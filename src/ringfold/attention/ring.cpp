// Ring attention (Liu et al. 2023) over zigzag shards. At hop i rank r works on the shard of rank r - i while that
// shard already travels on to rank r + 1. Every result is summed in the order own shard, r-1, r-2, ...: the same bits
// each run.
#include <ATen/ATen.h>

#include <memory>

#include "ringfold/attention/schemes.h"

namespace ringfold::attention_detail {
namespace {

// A buffer on its way to the next rank, and the one that comes in from the previous rank meanwhile.
class Hop {
 public:
  Hop(const CpContext& context, const at::Tensor& send, const ExchangeKey& key)
      : send_(send),
        recv_(at::empty_like(send)),
        pending_(start_ring_hop(*context.exchange, context.group, send_, recv_, key)) {}

  at::Tensor wait() {
    pending_->wait();
    return recv_;
  }

 private:
  at::Tensor send_, recv_;
  std::unique_ptr<PendingExchange> pending_;
};

int source_at(const CpGroup& group, int hop) {
  return (group.index - hop + group.size) % group.size;
}

}  // namespace

AttentionBlock ring_forward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                            const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd) {
  AttentionBlock result = empty_result(q_thd);
  const CpGroup& group = context.group;
  at::Tensor kv_2tgd = at::stack({k_tgd, v_tgd});
  for (int hop = 0; hop < group.size; ++hop) {
    std::unique_ptr<Hop> kv_hop;
    if (hop + 1 < group.size) kv_hop = std::make_unique<Hop>(context, kv_2tgd, key);
    attend_shard(call, context, source_at(group, hop), q_thd, kv_2tgd[0], kv_2tgd[1], result);
    if (kv_hop) kv_2tgd = kv_hop->wait();
  }
  return result;
}

AttentionGrads ring_backward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                             const ForwardState& state) {
  const CpGroup& group = context.group;
  const auto sum_options = state.q_thd.options().dtype(sum_type(state.q_thd));
  const at::Tensor dq_thd = at::zeros(state.q_thd.sizes(), sum_options);
  at::Tensor kv_2tgd = at::stack({state.k_tgd, state.v_tgd});
  std::unique_ptr<Hop> dkv_hop;
  for (int hop = 0; hop < group.size; ++hop) {
    std::unique_ptr<Hop> kv_hop;
    if (hop + 1 < group.size) kv_hop = std::make_unique<Hop>(context, kv_2tgd, key);
    const at::Tensor dkv_2tgd = at::zeros(kv_2tgd.sizes(), sum_options);
    AttentionGrads grads{dq_thd, dkv_2tgd[0], dkv_2tgd[1]};
    attend_shard_backward(call, context, source_at(group, hop), state, kv_2tgd[0], kv_2tgd[1], grads);
    // The sum that earlier ranks made for this shard arrives one hop behind it; it goes on with the own part added.
    if (dkv_hop) dkv_2tgd.add_(dkv_hop->wait());
    dkv_hop = std::make_unique<Hop>(context, dkv_2tgd, key);
    if (kv_hop) kv_2tgd = kv_hop->wait();
  }
  const at::Tensor home_2tgd = dkv_hop->wait();
  return {dq_thd, home_2tgd[0], home_2tgd[1]};
}

}  // namespace ringfold::attention_detail
