// Attention of many blocks in one call: block i is a range of query rows on a range of key rows of packed tensors, all
// of one mask. Half precision on a GPU. Rows that no block covers are neither read nor, in the results, anything but
// empty: output and gradients 0, log-sum-exp -inf.
// Legend: t query rows, s key rows, h query heads, g KV heads, d head dim, b blocks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ringfold/kernels/attention.h"

namespace ringfold {

struct BlockRows {
  int64_t q_begin = 0, q_count = 0;
  int64_t kv_begin = 0, kv_count = 0;
  bool operator==(const BlockRows&) const = default;
};

struct HeadShape {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

// From one block to the next, in rows.
struct BlockSteps {
  int64_t q = 0, kv = 0;
};

// What a call needs to know about its blocks, on the host and on the device; built once, used by all layers.
struct VarlenBlocks {
  // Blocks without queries or without keys are left out. Query ranges must not overlap; neither must key ranges.
  VarlenBlocks(BlockMask mask, const std::vector<BlockRows>& blocks, const HeadShape& shape, at::Device device);

  BlockMask mask;
  std::vector<BlockRows> rows;  // in the given order
  HeadShape shape;
  int64_t q_rows = 0, kv_rows = 0;  // sums
  int64_t max_q = 0, max_kv = 0;
  // Set where all blocks have the same counts and lie at the same distance: one block, or a pack of equal samples.
  std::optional<BlockSteps> equal_steps;

  // ATen's kernel wants compact rows: cumulative counts, and the rows to gather (undefined: they are adjacent already).
  at::Tensor cu_q, cu_kv;        // int32 (b + 1)
  at::Tensor q_index, kv_index;  // int64

  // cuDNN's kernel takes rows where they lie: counts and offsets in elements, longest block first, padded with empty
  // blocks to `capacity` so that one plan serves many packs.
  int64_t capacity = 0;
  at::Tensor q_count_b, kv_count_b;                  // int32
  at::Tensor q_offset_b, kv_offset_b, lse_offset_b;  // int64 (capacity + 1)
};

enum class VarlenKernel { kFlash, kCudnn };

// Whether this program and this GPU have cuDNN's kernel for the shape.
bool has_cudnn_attention(at::Device device, const HeadShape& shape);

AttentionBlock varlen_attention_forward(VarlenKernel kernel, const VarlenBlocks& blocks, const at::Tensor& q_thd,
                                        const at::Tensor& k_sgd, const at::Tensor& v_sgd, double scale);
// `out_thd` and `lse_ht` are those of the merged result (kernels/attention.h).
AttentionGrads varlen_attention_backward(VarlenKernel kernel, const VarlenBlocks& blocks, const at::Tensor& dout_thd,
                                         const at::Tensor& q_thd, const at::Tensor& k_sgd, const at::Tensor& v_sgd,
                                         const at::Tensor& out_thd, const at::Tensor& lse_ht, double scale);

}  // namespace ringfold
