// Fused attention, forward and backward, as cuDNN graphs over packed tensors of bf16. cuDNN recognises the pattern of
// operations and runs it as one kernel; the forms here are the ones it knows.
// Legend: b batch entries, h query heads, g KV heads, q/s longest query/key length, d head dim.
#pragma once

#include "ringfold/kernels/cudnn/graph.h"

namespace ringfold::cudnn_detail {

// Ids of what a run binds. Offsets are in elements, int64, b + 1 of them; counts int32, b of them. LSE is token-major
// (rows, h): cuDNN's backward goes wrong silently with the other order.
enum AttentionId : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLse,
  kDout,
  kDq,
  kDk,
  kDv,
  kQueryCounts,
  kKeyCounts,
  kQueryOffsets,
  kKeyOffsets,
  kValueOffsets,
  kOutOffsets,
  kLseOffsets,
};

// `equal`: every entry has max_q and max_kv rows, and the next begins q_step and kv_step rows further: the graph takes
// neither counts nor offsets. Otherwise both say where the entries are, and steps are not looked at.
struct AttentionShape {
  int64_t batch = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_q = 0, max_kv = 0;  // longest entry
  bool equal = false;
  int64_t q_step = 0, kv_step = 0;
  bool causal = false;
  float scale = 1;
  auto operator<=>(const AttentionShape&) const = default;
};

void build_attention_forward(Graph& graph, const AttentionShape& shape);
void build_attention_backward(Graph& graph, const AttentionShape& shape);

}  // namespace ringfold::cudnn_detail
