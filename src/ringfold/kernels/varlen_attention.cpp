// The blocks' metadata, and ATen's FlashAttention-2 kernel as the portable way to run them.
#include "ringfold/kernels/varlen_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "ringfold/base/error.h"
#include "ringfold/base/pow2.h"
#include "ringfold/device/device.h"
#include "ringfold/kernels/cudnn_attention.h"

namespace ringfold {
namespace {

// cuDNN's plans are made for a number of blocks: 16, 32, 64 ... Each new plan costs a compilation of up to 0.1 s; as
// many empty blocks of 512 tokens as full ones cost 5 % of the call.
int64_t capacity_for(int64_t blocks) {
  return std::max<int64_t>(16, next_power_of_2(blocks));
}

at::Tensor cumulative_counts(const std::vector<BlockRows>& rows, int64_t BlockRows::*count, at::Device device) {
  std::vector<int32_t> sums{0};
  for (const BlockRows& block : rows) sums.push_back(sums.back() + static_cast<int32_t>(block.*count));
  return to_device(sums, device);
}

// The rows of all blocks; undefined when they are adjacent.
at::Tensor row_index(const std::vector<BlockRows>& rows, int64_t BlockRows::*begin, int64_t BlockRows::*count,
                     at::Device device) {
  bool adjacent = true;
  std::vector<int64_t> index;
  for (const BlockRows& block : rows) {
    adjacent = adjacent && (index.empty() || index.back() + 1 == block.*begin);
    for (int64_t row = block.*begin; row < block.*begin + block.*count; ++row) index.push_back(row);
  }
  return adjacent ? at::Tensor() : to_device(index, device);
}

at::Tensor padded_counts(const std::vector<BlockRows>& rows, int64_t BlockRows::*count, int64_t capacity,
                         at::Device device) {
  std::vector<int32_t> counts(static_cast<size_t>(capacity), 0);
  for (size_t i = 0; i < rows.size(); ++i) counts[i] = static_cast<int32_t>(rows[i].*count);
  return to_device(counts, device);
}

at::Tensor padded_offsets(const std::vector<BlockRows>& rows, int64_t BlockRows::*begin, int64_t BlockRows::*count,
                          int64_t row_elements, int64_t capacity, at::Device device) {
  const int64_t end = rows.empty() ? 0 : rows.back().*begin + rows.back().*count;
  std::vector<int64_t> offsets(static_cast<size_t>(capacity) + 1, end * row_elements);
  for (size_t i = 0; i < rows.size(); ++i) offsets[i] = rows[i].*begin * row_elements;
  return to_device(offsets, device);
}

std::optional<BlockSteps> equal_steps_of(const std::vector<BlockRows>& rows) {
  if (rows.empty()) return std::nullopt;
  const BlockRows& first = rows[0];
  BlockSteps steps{first.q_count, first.kv_count};
  if (rows.size() > 1) steps = {rows[1].q_begin - first.q_begin, rows[1].kv_begin - first.kv_begin};
  if (steps.q < first.q_count || steps.kv < first.kv_count) return std::nullopt;  // not in rising order
  BlockRows expected = first;
  for (const BlockRows& block : rows) {
    if (block != expected) return std::nullopt;
    expected.q_begin += steps.q;
    expected.kv_begin += steps.kv;
  }
  return steps;
}

// Rows of all blocks put together, along the tokens of a (t, ...) tensor.
at::Tensor gather(const at::Tensor& x, const at::Tensor& index, int64_t begin, int64_t count) {
  return index.defined() ? x.index_select(0, index) : x.narrow(0, begin, count);
}

at::Tensor scatter(const at::Tensor& compact, const at::Tensor& whole, const at::Tensor& index, int64_t begin,
                   double empty) {
  if (compact.size(0) == whole.size(0)) return compact;
  auto sizes = compact.sizes().vec();
  sizes[0] = whole.size(0);
  const at::Tensor out = at::full(sizes, empty, compact.options());
  if (index.defined()) return out.index_copy_(0, index, compact);
  out.narrow(0, begin, compact.size(0)).copy_(compact);
  return out;
}

AttentionBlock flash_forward(const VarlenBlocks& blocks, const at::Tensor& q_thd, const at::Tensor& k_sgd,
                             const at::Tensor& v_sgd, double scale) {
  const int64_t q_begin = blocks.rows[0].q_begin, kv_begin = blocks.rows[0].kv_begin;
  const auto [out_thd, lse_ht, rng_state, unused, mask] = at::_flash_attention_forward(
      gather(q_thd, blocks.q_index, q_begin, blocks.q_rows), gather(k_sgd, blocks.kv_index, kv_begin, blocks.kv_rows),
      gather(v_sgd, blocks.kv_index, kv_begin, blocks.kv_rows), blocks.cu_q, blocks.cu_kv, blocks.max_q, blocks.max_kv,
      /*dropout_p=*/0.0, blocks.mask == BlockMask::kCausal, /*return_debug_mask=*/false, scale);
  const double no_key = -std::numeric_limits<double>::infinity();
  return {scatter(out_thd, q_thd, blocks.q_index, q_begin, 0),
          scatter(lse_ht.t(), q_thd, blocks.q_index, q_begin, no_key).t()};
}

AttentionGrads flash_backward(const VarlenBlocks& blocks, const at::Tensor& dout_thd, const at::Tensor& q_thd,
                              const at::Tensor& k_sgd, const at::Tensor& v_sgd, const at::Tensor& out_thd,
                              const at::Tensor& lse_ht, double scale) {
  const int64_t q_begin = blocks.rows[0].q_begin, kv_begin = blocks.rows[0].kv_begin;
  const auto of_queries = [&](const at::Tensor& x) { return gather(x, blocks.q_index, q_begin, blocks.q_rows); };
  const auto of_keys = [&](const at::Tensor& x) { return gather(x, blocks.kv_index, kv_begin, blocks.kv_rows); };
  // Without dropout the kernel reads no random state.
  const at::Tensor no_state = at::empty({2}, q_thd.options().dtype(at::kUInt64));
  const auto [dq_thd, dk_sgd, dv_sgd] = at::_flash_attention_backward(
      of_queries(dout_thd), of_queries(q_thd), of_keys(k_sgd), of_keys(v_sgd), of_queries(out_thd),
      of_queries(lse_ht.t()).t().contiguous(), blocks.cu_q, blocks.cu_kv, blocks.max_q, blocks.max_kv,
      /*dropout_p=*/0.0, blocks.mask == BlockMask::kCausal, no_state, no_state, scale);
  return {scatter(dq_thd, q_thd, blocks.q_index, q_begin, 0), scatter(dk_sgd, k_sgd, blocks.kv_index, kv_begin, 0),
          scatter(dv_sgd, v_sgd, blocks.kv_index, kv_begin, 0)};
}

}  // namespace

VarlenBlocks::VarlenBlocks(BlockMask mask_in, const std::vector<BlockRows>& blocks, const HeadShape& shape_in,
                           at::Device device)
    : mask(mask_in), shape(shape_in) {
  for (const BlockRows& block : blocks) {
    if (block.q_count == 0 || block.kv_count == 0) continue;
    RINGFOLD_ASSERT(mask == BlockMask::kFull || block.q_count == block.kv_count, "a causal block is square");
    rows.push_back(block);
    q_rows += block.q_count;
    kv_rows += block.kv_count;
    max_q = std::max(max_q, block.q_count);
    max_kv = std::max(max_kv, block.kv_count);
  }
  equal_steps = equal_steps_of(rows);
  cu_q = cumulative_counts(rows, &BlockRows::q_count, device);
  cu_kv = cumulative_counts(rows, &BlockRows::kv_count, device);
  q_index = row_index(rows, &BlockRows::q_begin, &BlockRows::q_count, device);
  kv_index = row_index(rows, &BlockRows::kv_begin, &BlockRows::kv_count, device);

  std::vector<BlockRows> longest_first = rows;
  std::stable_sort(longest_first.begin(), longest_first.end(), [](const BlockRows& a, const BlockRows& b) {
    return a.q_count * a.kv_count > b.q_count * b.kv_count;
  });
  capacity = capacity_for(static_cast<int64_t>(rows.size()));
  q_count_b = padded_counts(longest_first, &BlockRows::q_count, capacity, device);
  kv_count_b = padded_counts(longest_first, &BlockRows::kv_count, capacity, device);
  const auto offsets_of = [&](int64_t BlockRows::*begin, int64_t BlockRows::*count, int64_t row_elements) {
    return padded_offsets(longest_first, begin, count, row_elements, capacity, device);
  };
  q_offset_b = offsets_of(&BlockRows::q_begin, &BlockRows::q_count, shape.heads * shape.head_dim);
  kv_offset_b = offsets_of(&BlockRows::kv_begin, &BlockRows::kv_count, shape.kv_heads * shape.head_dim);
  lse_offset_b = offsets_of(&BlockRows::q_begin, &BlockRows::q_count, shape.heads);
}

bool has_cudnn_attention(at::Device device, const HeadShape& shape) {
  return device.is_cuda() && cudnn_has_attention(device, shape);
}

AttentionBlock varlen_attention_forward(VarlenKernel kernel, const VarlenBlocks& blocks, const at::Tensor& q_thd,
                                        const at::Tensor& k_sgd, const at::Tensor& v_sgd, double scale) {
  if (blocks.rows.empty()) {
    return {at::zeros_like(q_thd), at::full({q_thd.size(1), q_thd.size(0)}, -std::numeric_limits<double>::infinity(),
                                            q_thd.options().dtype(at::kFloat))};
  }
  return kernel == VarlenKernel::kCudnn ? cudnn_attention_forward(blocks, q_thd, k_sgd, v_sgd, scale)
                                        : flash_forward(blocks, q_thd, k_sgd, v_sgd, scale);
}

AttentionGrads varlen_attention_backward(VarlenKernel kernel, const VarlenBlocks& blocks, const at::Tensor& dout_thd,
                                         const at::Tensor& q_thd, const at::Tensor& k_sgd, const at::Tensor& v_sgd,
                                         const at::Tensor& out_thd, const at::Tensor& lse_ht, double scale) {
  if (blocks.rows.empty()) return {at::zeros_like(q_thd), at::zeros_like(k_sgd), at::zeros_like(v_sgd)};
  return kernel == VarlenKernel::kCudnn
             ? cudnn_attention_backward(blocks, dout_thd, q_thd, k_sgd, v_sgd, out_thd, lse_ht, scale)
             : flash_backward(blocks, dout_thd, q_thd, k_sgd, v_sgd, out_thd, lse_ht, scale);
}

}  // namespace ringfold
