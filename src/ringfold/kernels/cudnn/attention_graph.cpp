#include "ringfold/kernels/cudnn/attention_graph.h"

#include <limits>

namespace ringfold::cudnn_detail {
namespace {

constexpr auto kBf16 = CUDNN_DATA_BFLOAT16;
constexpr auto kFloat = CUDNN_DATA_FLOAT;
constexpr auto kInt = CUDNN_DATA_INT32;
constexpr auto kBool = CUDNN_DATA_BOOLEAN;

// Parts that forward and backward share. Counts and offsets are null for equal entries.
struct Common {
  const GraphTensor *q_counts, *kv_counts, *q_offsets, *k_offsets, *v_offsets, *out_offsets, *lse_offsets;
  Dims score_dims, score_strides;           // (b, h, q, s)
  Dims row_dims, row_strides, lse_strides;  // (b, h, q, 1): inside the kernel, and token-major
  Dims q_dims, q_strides, kv_dims, kv_strides;
  const GraphTensor *q, *k_transposed;
};

const GraphTensor* list(Graph& graph, AttentionId id, int64_t count, cudnnDataType_t type) {
  return graph.bound(id, type, {count, 1, 1, 1}, {1, 1, 1, 1});
}

Dims transposed_dims(const AttentionShape& s) {
  return {s.batch, s.kv_heads, s.head_dim, s.max_kv};
}

// Rows from entry to entry. With offsets the stride over the batch only has to be plausible.
int64_t q_step(const AttentionShape& s) {
  return s.equal ? s.q_step : s.max_q;
}

int64_t kv_step(const AttentionShape& s) {
  return s.equal ? s.kv_step : s.max_kv;
}

Dims transposed_strides(const AttentionShape& s) {
  return {kv_step(s) * s.kv_heads * s.head_dim, s.head_dim, 1, s.kv_heads * s.head_dim};
}

Common common_parts(Graph& graph, const AttentionShape& s) {
  Common c{};
  if (!s.equal) {
    c.q_counts = list(graph, kQueryCounts, s.batch, kInt);
    c.kv_counts = list(graph, kKeyCounts, s.batch, kInt);
    c.q_offsets = list(graph, kQueryOffsets, s.batch + 1, CUDNN_DATA_INT64);
    c.k_offsets = list(graph, kKeyOffsets, s.batch + 1, CUDNN_DATA_INT64);
    c.v_offsets = list(graph, kValueOffsets, s.batch + 1, CUDNN_DATA_INT64);
    c.out_offsets = list(graph, kOutOffsets, s.batch + 1, CUDNN_DATA_INT64);
    c.lse_offsets = list(graph, kLseOffsets, s.batch + 1, CUDNN_DATA_INT64);
  }
  c.score_dims = {s.batch, s.heads, s.max_q, s.max_kv};
  c.score_strides = {s.heads * s.max_q * s.max_kv, s.max_q * s.max_kv, s.max_kv, 1};
  c.row_dims = {s.batch, s.heads, s.max_q, 1};
  c.row_strides = {s.heads * s.max_q, s.max_q, 1, 1};
  c.lse_strides = {s.heads * q_step(s), 1, s.heads, 1};
  c.q_dims = {s.batch, s.heads, s.max_q, s.head_dim};
  c.q_strides = {q_step(s) * s.heads * s.head_dim, s.head_dim, s.heads * s.head_dim, 1};
  c.kv_dims = {s.batch, s.kv_heads, s.max_kv, s.head_dim};
  c.kv_strides = {kv_step(s) * s.kv_heads * s.head_dim, s.head_dim, s.kv_heads * s.head_dim, 1};
  c.q = graph.bound(kQ, kBf16, c.q_dims, c.q_strides, c.q_offsets);
  c.k_transposed = graph.bound(kK, kBf16, transposed_dims(s), transposed_strides(s), c.k_offsets);
  return c;
}

const GraphTensor* row_number(Graph& graph, const GraphTensor* scores, cudnnDataType_t compute, int64_t axis) {
  return graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, scores, nullptr, nullptr, {kInt, compute, axis});
}

const GraphTensor* keep_where(Graph& graph, const GraphTensor* scores, const GraphTensor* mask) {
  const GraphTensor* nothing = graph.constant(-std::numeric_limits<float>::infinity());
  return graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, nothing, mask, {});
}

// scale * q k^T; with counts, -inf outside an entry's rows and columns.
const GraphTensor* scaled_scores(Graph& graph, const AttentionShape& s, const Common& c, const GraphTensor* scale) {
  const GraphTensor* product = graph.inner(kFloat, c.score_dims, c.score_strides);
  graph.matmul(c.q, c.k_transposed, product, {c.q_counts, c.kv_counts, nullptr});
  const GraphTensor* scores = graph.pointwise(CUDNN_POINTWISE_MUL, product, scale);
  if (s.equal) return scores;
  const Graph::Pointwise boolean{kBool, kBool, -1};
  const GraphTensor* row = row_number(graph, scores, kInt, 2);
  const GraphTensor* column = row_number(graph, scores, kInt, 3);
  const GraphTensor* row_ok = graph.pointwise(CUDNN_POINTWISE_CMP_LT, row, c.q_counts, nullptr, boolean);
  const GraphTensor* column_ok = graph.pointwise(CUDNN_POINTWISE_CMP_LT, column, c.kv_counts, nullptr, boolean);
  return keep_where(graph, scores, graph.pointwise(CUDNN_POINTWISE_LOGICAL_AND, row_ok, column_ok, nullptr, boolean));
}

const GraphTensor* causal(Graph& graph, const GraphTensor* scores) {
  const GraphTensor* row = row_number(graph, scores, kFloat, 2);
  const GraphTensor* column = row_number(graph, scores, kFloat, 3);
  return keep_where(graph, scores, graph.pointwise(CUDNN_POINTWISE_CMP_GE, row, column, nullptr, {kBool, kBool, -1}));
}

// y = a^T b over the queries of an entry: the gradient of keys or values. With fewer KV heads than query heads one of
// bf16 for each query head comes first.
void key_gradient(Graph& graph, const AttentionShape& s, const Common& c, const GraphTensor* a, const GraphTensor* b,
                  const GraphTensor* y, const GraphTensor* offsets) {
  const GraphTensor* transposed =
      graph.inner(kBf16, {s.batch, s.heads, s.max_kv, s.max_q}, {c.score_strides[0], c.score_strides[1], 1, s.max_kv});
  graph.reshape(a, transposed);
  const Graph::Counts counts{c.kv_counts, nullptr, c.q_counts};
  if (s.heads == s.kv_heads) return graph.matmul(transposed, b, y, counts);
  const int64_t width = s.heads * s.head_dim;
  const GraphTensor* by_head = graph.scratch(kBf16, {s.batch, s.heads, s.max_kv, s.head_dim},
                                             {kv_step(s) * width, s.head_dim, width, 1}, offsets, width * 2);
  graph.matmul(transposed, b, by_head, counts);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, by_head, y);
}

}  // namespace

void build_attention_forward(Graph& graph, const AttentionShape& s) {
  const Common c = common_parts(graph, s);
  const GraphTensor* v = graph.bound(kV, kBf16, c.kv_dims, c.kv_strides, c.v_offsets);
  const GraphTensor* out = graph.bound(kOut, kBf16, c.q_dims, c.q_strides, c.out_offsets);
  const GraphTensor* lse = graph.bound(kLse, kFloat, c.row_dims, c.lse_strides, c.lse_offsets);
  const GraphTensor* scores = scaled_scores(graph, s, c, graph.constant(s.scale));
  if (s.causal) scores = causal(graph, scores);
  const GraphTensor* largest = graph.inner(kFloat, c.row_dims, c.row_strides);
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, largest);
  const GraphTensor* weights =
      graph.pointwise(CUDNN_POINTWISE_EXP, graph.pointwise(CUDNN_POINTWISE_SUB, scores, largest));
  const GraphTensor* sum = graph.inner(kFloat, c.row_dims, c.row_strides);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, weights, sum);
  graph.pointwise_into(lse, CUDNN_POINTWISE_ADD, largest, graph.pointwise(CUDNN_POINTWISE_LOG, sum), nullptr, {});
  const GraphTensor* p = graph.pointwise(CUDNN_POINTWISE_DIV, weights, sum, nullptr, {kBf16, kFloat, -1});
  graph.matmul(p, v, out, {c.q_counts, nullptr, c.kv_counts});
}

void build_attention_backward(Graph& graph, const AttentionShape& s) {
  const Common c = common_parts(graph, s);
  const int64_t width = s.heads * s.head_dim;
  const GraphTensor* v_transposed = graph.bound(kV, kBf16, transposed_dims(s), transposed_strides(s), c.v_offsets);
  const GraphTensor* out = graph.bound(kOut, kBf16, c.q_dims, c.q_strides, c.out_offsets);
  const GraphTensor* dout = graph.bound(kDout, kBf16, c.q_dims, c.q_strides, c.out_offsets);
  const GraphTensor* lse = graph.bound(kLse, kFloat, c.row_dims, c.lse_strides, c.lse_offsets);
  const GraphTensor* dq = graph.bound(kDq, kBf16, c.q_dims, c.q_strides, c.q_offsets);
  const GraphTensor* dk = graph.bound(kDk, kBf16, c.kv_dims, c.kv_strides, c.k_offsets);
  const GraphTensor* dv = graph.bound(kDv, kBf16, c.kv_dims, c.kv_strides, c.v_offsets);
  const GraphTensor* one = graph.constant(1);
  const GraphTensor* scale = graph.constant(s.scale);

  // delta = sum of dout * out over the head dim, kept for all key blocks.
  const GraphTensor* row_sum = graph.inner(kFloat, c.row_dims, c.row_strides);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, graph.pointwise(CUDNN_POINTWISE_MUL, dout, out), row_sum);
  const GraphTensor* delta = graph.scratch(kFloat, c.row_dims, c.lse_strides, c.lse_offsets, s.heads * 4);
  graph.pointwise_into(delta, CUDNN_POINTWISE_MUL, row_sum, one, nullptr, {});

  const GraphTensor* shifted = graph.pointwise(CUDNN_POINTWISE_SUB, scaled_scores(graph, s, c, scale), lse);
  if (s.causal) shifted = causal(graph, shifted);
  const GraphTensor* p = graph.pointwise(CUDNN_POINTWISE_EXP, shifted);
  key_gradient(graph, s, c, p, dout, dv, c.v_offsets);

  const GraphTensor* dp = graph.inner(kFloat, c.score_dims, c.score_strides);
  graph.matmul(dout, v_transposed, dp, {c.q_counts, c.kv_counts, nullptr});
  const GraphTensor* ds =
      graph.pointwise(CUDNN_POINTWISE_MUL,
                      graph.pointwise(CUDNN_POINTWISE_MUL, graph.pointwise(CUDNN_POINTWISE_SUB, dp, delta), p), scale);
  key_gradient(graph, s, c, ds, c.q, dk, c.k_offsets);

  const GraphTensor* k = graph.inner(kFloat, c.kv_dims, c.kv_strides, c.k_offsets);
  graph.reshape(c.k_transposed, k);
  const GraphTensor* sum = graph.scratch(kFloat, c.q_dims, c.q_strides, c.q_offsets, width * 4);
  graph.matmul(ds, k, sum, {c.q_counts, nullptr, c.kv_counts});
  graph.pointwise_into(dq, CUDNN_POINTWISE_IDENTITY, sum, nullptr, nullptr, {});
}

}  // namespace ringfold::cudnn_detail
