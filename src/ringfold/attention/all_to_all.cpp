// Ulysses (DeepSpeed: Jacobs et al. 2023, arXiv:2309.14509): the group changes its split from rows to heads. Each rank
// gets all rows of its share of the heads, puts them into sequence order without the pads, and runs plain packed
// attention. Every tensor of one direction travels in one flat buffer a peer.
// Legend beyond blocks.h: c group size, n real tokens of the whole pack, w elements of one row of a buffer.
#include <ATen/ATen.h>

#include <limits>
#include <vector>

#include "ringfold/attention/schemes.h"
#include "ringfold/base/error.h"
#include "ringfold/device/device.h"
#include "ringfold/shard/split.h"

namespace ringfold {

// The pack as one rank sees it that has all of its rows.
struct WholePack {
  CpContext context;     // a group of one
  at::Tensor row_n;      // int64: real tokens in the rows of all ranks put together
  at::Tensor pad_row_t;  // int64: this rank's pad rows
};

namespace attention_detail {
namespace {

const WholePack& whole_pack(const CpContext& context, const at::Device& device) {
  if (context.whole_pack) return *context.whole_pack;
  const PackLayout& layout = context.layout;
  std::vector<int64_t> lengths, pads;
  for (const SampleShard& sample : layout.samples()) lengths.push_back(sample.real_tokens);
  for (int64_t row = 0; row < layout.local_tokens(); ++row) {
    if (!layout.is_real()[static_cast<size_t>(row)]) pads.push_back(row);
  }
  WholePack whole{CpContext(CpGroup{}, PackLayout(lengths, 1, 0)), to_device(rows_in_sequence(layout), device),
                  to_device(pads, device)};
  whole.context.kernel = context.kernel;
  context.whole_pack = std::make_shared<const WholePack>(std::move(whole));
  return *context.whole_pack;
}

// Log-sum-exps travel in the buffer's type: the bits of one as the bits of one or more elements.
at::Tensor as_elements(const at::Tensor& lse_th, at::ScalarType type) {
  return lse_th.contiguous().unsqueeze(-1).view(type);
}

at::Tensor as_lse(const at::Tensor& elements, at::ScalarType type) {
  return elements.contiguous().view(type).squeeze(-1);
}

// The widths in a row of the buffer from one rank to another: some tensors of query heads, then KV ones, then
// log-sum-exps.
class Columns {
 public:
  Columns(const CpGroup& group, const at::Tensor& q_thd, const at::Tensor& k_tgd)
      : c_(group.size),
        heads_(q_thd.size(1) / c_),
        kv_copies_(std::max<int64_t>(c_ / k_tgd.size(1), 1)),
        kv_heads_(std::max<int64_t>(k_tgd.size(1) / c_, 1)),
        head_dim_(q_thd.size(2)),
        type_(q_thd.scalar_type()),
        lse_type_(sum_type(q_thd)) {
    RINGFOLD_ASSERT(heads_ * c_ == q_thd.size(1) && kv_heads_ * c_ == k_tgd.size(1) * kv_copies_,
                    "the group's size divides the heads");
  }

  // --- Of all heads and this rank's rows, by member: (t, c, w) ---

  at::Tensor of_queries(const at::Tensor& x_thd) const { return x_thd.unflatten(1, {c_, heads_}).flatten(2); }
  // With fewer KV heads than ranks, a copy for every rank that needs it.
  at::Tensor of_keys(const at::Tensor& x_tgd) const {
    if (kv_copies_ == 1) return x_tgd.unflatten(1, {c_, kv_heads_}).flatten(2);
    return x_tgd.unsqueeze(2).expand({-1, -1, kv_copies_, -1}).flatten(1, 2);
  }
  at::Tensor of_lse(const at::Tensor& lse_ht) const {
    return as_elements(lse_ht.t(), type_).unflatten(1, {c_, heads_}).flatten(2);
  }

  // --- Back, from (c, t, w) ---

  at::Tensor all_queries(const at::Tensor& x_ctw) const {
    return x_ctw.unflatten(2, {heads_, head_dim_}).transpose(0, 1).flatten(1, 2);
  }
  // What the ranks found for their copies of a KV head is added up.
  at::Tensor all_keys(const at::Tensor& x_ctw) const {
    const at::Tensor x_tgd = x_ctw.unflatten(2, {kv_heads_, head_dim_}).transpose(0, 1).flatten(1, 2);
    if (kv_copies_ == 1) return x_tgd;
    return x_tgd.unflatten(1, {x_tgd.size(1) / kv_copies_, kv_copies_}).to(lse_type_).sum(2);
  }
  at::Tensor all_lse(const at::Tensor& x_ctw) const {
    return as_lse(x_ctw.unflatten(2, {heads_, lse_elements()}).transpose(0, 1).flatten(1, 2), lse_type_).t();
  }

  // --- This rank's heads and the rows of the whole pack, from and to (n, w) ---

  at::Tensor queries(const at::Tensor& x_nw) const { return x_nw.unflatten(1, {heads_, head_dim_}); }
  at::Tensor keys(const at::Tensor& x_nw) const { return x_nw.unflatten(1, {kv_heads_, head_dim_}); }
  at::Tensor lse(const at::Tensor& x_nw) const {
    return as_lse(x_nw.unflatten(1, {heads_, lse_elements()}), lse_type_).t();
  }
  at::Tensor flat_lse(const at::Tensor& lse_hn) const { return as_elements(lse_hn.t(), type_).flatten(1); }

  int64_t query_width() const { return heads_ * head_dim_; }
  int64_t key_width() const { return kv_heads_ * head_dim_; }
  int64_t lse_width() const { return heads_ * lse_elements(); }

 private:
  int64_t lse_elements() const { return static_cast<int64_t>(c10::elementSize(lse_type_) / c10::elementSize(type_)); }

  int64_t c_, heads_, kv_copies_, kv_heads_, head_dim_;
  at::ScalarType type_, lse_type_;
};

// One exchange. Tensors of this rank's rows by member go out; those of all ranks' rows come back, each (c, t, w).
std::vector<at::Tensor> swap(const CpContext& context, const ExchangeKey& key,
                             const std::vector<at::Tensor>& parts_tcw) {
  std::vector<at::Tensor> parts_ctw;
  std::vector<int64_t> widths;
  for (const at::Tensor& part : parts_tcw) {
    RINGFOLD_ASSERT(part.scalar_type() == parts_tcw.front().scalar_type(), "a buffer has one type");
    parts_ctw.push_back(part.transpose(0, 1));
    widths.push_back(part.size(2));
  }
  const at::Tensor sent = at::cat(parts_ctw, 2).contiguous();
  return all_to_all(*context.exchange, context.group, sent, key).split_with_sizes(widths, 2);
}

// To the heads: this rank's heads of every real token, (n, w) each, in sequence order.
std::vector<at::Tensor> to_heads(const CpContext& context, const WholePack& whole, const ExchangeKey& key,
                                 const std::vector<at::Tensor>& parts_tcw) {
  std::vector<at::Tensor> parts_nw;
  for (const at::Tensor& part : swap(context, key, parts_tcw)) {
    parts_nw.push_back(part.flatten(0, 1).index_select(0, whole.row_n));
  }
  return parts_nw;
}

// To the rows: all heads of this rank's rows by member, (c, t, w) each; pad rows are 0.
std::vector<at::Tensor> to_rows(const CpContext& context, const WholePack& whole, const ExchangeKey& key,
                                const std::vector<at::Tensor>& parts_nw) {
  const int64_t c = context.group.size, t = context.layout.local_tokens();
  std::vector<at::Tensor> parts_tcw;
  for (const at::Tensor& part : parts_nw) {
    const at::Tensor rows = at::zeros({c * t, part.size(1)}, part.options()).index_copy_(0, whole.row_n, part);
    parts_tcw.push_back(rows.unflatten(0, {c, t}).transpose(0, 1));
  }
  return swap(context, key, parts_tcw);
}

}  // namespace

AttentionBlock all_to_all_forward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                                  const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd) {
  const WholePack& whole = whole_pack(context, q_thd.device());
  const Columns columns(context.group, q_thd, k_tgd);
  AttentionBlock block;
  {
    const auto mine =
        to_heads(context, whole, key, {columns.of_queries(q_thd), columns.of_keys(k_tgd), columns.of_keys(v_tgd)});
    block = attend_alone(call, whole.context, columns.queries(mine[0]), columns.keys(mine[1]), columns.keys(mine[2]));
  }
  const auto home =
      to_rows(context, whole, key, {block.out_thd.to(q_thd.scalar_type()).flatten(1), columns.flat_lse(block.lse_ht)});
  const double nothing = -std::numeric_limits<double>::infinity();
  return {columns.all_queries(home[0]), columns.all_lse(home[1]).index_fill_(1, whole.pad_row_t, nothing)};
}

AttentionGrads all_to_all_backward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                                   const ForwardState& state) {
  // Sent again rather than kept, as much as q, k, v and the output once more for every layer.
  const WholePack& whole = whole_pack(context, state.q_thd.device());
  const Columns columns(context.group, state.q_thd, state.k_tgd);
  AttentionGrads grads;
  {
    const auto mine = to_heads(context, whole, key,
                               {columns.of_queries(state.q_thd), columns.of_keys(state.k_tgd),
                                columns.of_keys(state.v_tgd), columns.of_queries(state.result.out_thd),
                                columns.of_lse(state.result.lse_ht), columns.of_queries(state.dout_thd)});
    grads = attend_alone_backward(call, whole.context,
                                  {columns.queries(mine[0]),
                                   columns.keys(mine[1]),
                                   columns.keys(mine[2]),
                                   {columns.queries(mine[3]), columns.lse(mine[4])},
                                   columns.queries(mine[5])});
  }
  const auto home =
      to_rows(context, whole, key, {grads.dq_thd.flatten(1), grads.dk_sgd.flatten(1), grads.dv_sgd.flatten(1)});
  return {columns.all_queries(home[0]), columns.all_keys(home[1]), columns.all_keys(home[2])};
}

}  // namespace attention_detail
}  // namespace ringfold
