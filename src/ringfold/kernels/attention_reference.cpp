// Plain operations. Legend: t query tokens, s key tokens, g KV heads, r query heads of one KV head, d head dim.
#include <ATen/ATen.h>

#include <limits>

#include "ringfold/kernels/attention.h"

namespace ringfold {
namespace {

at::Tensor query_by_kv_head(const at::Tensor& x_thd, int64_t kv_heads) {
  const int64_t tokens = x_thd.size(0), heads = x_thd.size(1), head_dim = x_thd.size(2);
  return x_thd.reshape({tokens, kv_heads, heads / kv_heads, head_dim}).permute({1, 2, 0, 3});
}

at::Tensor kv_by_head(const at::Tensor& x_sgd) {
  return x_sgd.transpose(0, 1).unsqueeze(1);
}

at::Tensor back_to_thd(const at::Tensor& x_grtd) {
  return x_grtd.permute({2, 0, 1, 3}).reshape({x_grtd.size(2), x_grtd.size(0) * x_grtd.size(1), x_grtd.size(3)});
}

at::Tensor masked_scores(const at::Tensor& q_grtd, const at::Tensor& k_g1sd, BlockMask mask, double scale) {
  at::Tensor scores_grts = at::matmul(q_grtd, k_g1sd.transpose(-1, -2)).mul_(scale);
  if (mask == BlockMask::kCausal) {
    const at::Tensor future_ts =
        at::ones({q_grtd.size(2), k_g1sd.size(2)}, scores_grts.options().dtype(at::kBool)).triu(1);
    scores_grts.masked_fill_(future_ts, -std::numeric_limits<double>::infinity());
  }
  return scores_grts;
}

}  // namespace

AttentionBlock reference_attention_forward(const at::Tensor& q_thd, const at::Tensor& k_sgd, const at::Tensor& v_sgd,
                                           BlockMask mask, double scale) {
  const at::Tensor q_grtd = query_by_kv_head(q_thd, k_sgd.size(1));
  const at::Tensor scores_grts = masked_scores(q_grtd, kv_by_head(k_sgd), mask, scale);
  const at::Tensor lse_grt = at::logsumexp(scores_grts, -1);
  const at::Tensor p_grts = (scores_grts - lse_grt.unsqueeze(-1)).exp_();
  return {back_to_thd(at::matmul(p_grts, kv_by_head(v_sgd))), lse_grt.reshape({q_thd.size(1), q_thd.size(0)})};
}

AttentionGrads reference_attention_backward(const at::Tensor& dout_thd, const at::Tensor& q_thd,
                                            const at::Tensor& k_sgd, const at::Tensor& v_sgd, const at::Tensor& out_thd,
                                            const at::Tensor& lse_ht, BlockMask mask, double scale) {
  const int64_t kv_heads = k_sgd.size(1);
  const at::Tensor q_grtd = query_by_kv_head(q_thd, kv_heads);
  const at::Tensor dout_grtd = query_by_kv_head(dout_thd, kv_heads);
  const at::Tensor k_g1sd = kv_by_head(k_sgd);
  const at::Tensor lse_grt = lse_ht.reshape({kv_heads, q_grtd.size(1), q_thd.size(0)});

  const at::Tensor p_grts = masked_scores(q_grtd, k_g1sd, mask, scale).sub_(lse_grt.unsqueeze(-1)).exp_();
  const at::Tensor dp_grts = at::matmul(dout_grtd, kv_by_head(v_sgd).transpose(-1, -2));
  const at::Tensor delta_grt = (dout_grtd * query_by_kv_head(out_thd, kv_heads)).sum(-1, /*keepdim=*/true);
  const at::Tensor ds_grts = (dp_grts - delta_grt).mul_(p_grts).mul_(scale);

  // The query heads of one KV head add up in its gradient.
  const at::Tensor dk_gsd = at::matmul(ds_grts.transpose(-1, -2), q_grtd).sum(1);
  const at::Tensor dv_gsd = at::matmul(p_grts.transpose(-1, -2), dout_grtd).sum(1);
  return {back_to_thd(at::matmul(ds_grts, k_g1sd)), dk_gsd.transpose(0, 1), dv_gsd.transpose(0, 1)};
}

}  // namespace ringfold
