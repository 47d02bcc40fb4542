// The project's own CUDA kernels: one struct of raw pointers and sizes a kernel, one function that enqueues it. Rows
// are contiguous unless a stride is given. `type` is that of weights and activations; sums, statistics and partial
// results are fp32. Every launch is checked: a CUDA error becomes a std::runtime_error that names the kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ringfold::cuda {

enum class Type { kFloat, kBf16 };

// y = w * x / rms(x), inverse_rms (rows) kept. width: a multiple of 8, at most 16384.
struct RmsNorm {
  const void *x, *weight;
  void* y;
  float* inverse_rms;
  int64_t rows, width;
  float eps;
};
void rms_norm_forward(Type type, const RmsNorm& p, cudaStream_t stream);

// dx = dresidual + gradient through the norm; dresidual may be null. y: the norm's result again, or null.
// dweight_partial (partial_rows, width): to be summed over its rows; partial_rows = rms_norm_partial_rows().
struct RmsNormBackward {
  const void *dy, *x, *weight, *dresidual;
  const float* inverse_rms;
  void *dx, *y;
  float* dweight_partial;
  int64_t rows, width;
};
int64_t rms_norm_partial_rows();
void rms_norm_backward(Type type, const RmsNormBackward& p, cudaStream_t stream);

// into += sums over the rows of partial (rows, width), in a fixed order.
struct ColumnSums {
  const float* partial;
  float* into;
  int64_t rows, width;
};
void add_column_sums(const ColumnSums& p, cudaStream_t stream);

// From one row of q, k and v heads: q and k normalised over the head (weights may be null: no norm) and rotated, v
// copied. head_dim 64, 128 or 256. With kv_row, k and v of head g go to row kv_row[token] + g * kv_head_rows of
// head_dim elements, -1: nowhere; without, to (tokens, kv_heads, head_dim).
struct QkvHeads {
  const void *qkv, *q_weight, *k_weight;
  const float *cos, *sin;  // (tokens, head_dim), both halves of a row alike
  void *q, *k, *v;
  int64_t tokens, heads, kv_heads, head_dim;
  float eps;
  const int64_t* kv_row = nullptr;
  int64_t kv_head_rows = 0;
};
void qkv_heads_forward(Type type, const QkvHeads& p, cudaStream_t stream);
// dqkv from dq, dk, dv; the weights' gradients come as partial sums (qkv_partial_rows(), head_dim), one pair.
struct QkvHeadsBackward {
  const void *qkv, *q_weight, *k_weight, *dq, *dk, *dv;
  const float *cos, *sin;
  void* dqkv;
  float *dq_weight_partial, *dk_weight_partial;  // null without norm
  int64_t tokens, heads, kv_heads, head_dim;
  float eps;
};
int64_t qkv_partial_rows();
void qkv_heads_backward(Type type, const QkvHeadsBackward& p, cudaStream_t stream);

// a = silu(gate) * up; gate_up (rows, 2 width): gate first.
struct SwiGlu {
  const void* gate_up;
  void* a;
  int64_t rows, width;  // a multiple of 8
};
void swiglu_forward(Type type, const SwiGlu& p, cudaStream_t stream);
struct SwiGluBackward {
  const void *da, *gate_up;
  void *dgate_up, *a;  // a: the forward's result again
  int64_t rows, width;
};
void swiglu_backward(Type type, const SwiGluBackward& p, cudaStream_t stream);

// One pass over fp32 logits (rows, vocabulary): log-prob of the target, entropy, log-sum-exp, and whether no logit is
// larger than the target's. Logits are multiplied by inverse_temperature.
struct LogProb {
  const float* logits;
  const int64_t* target;
  float *log_prob, *entropy, *lse;
  bool* greedy;
  int64_t rows, vocabulary;
  float inverse_temperature;
};
void log_prob_forward(const LogProb& p, cudaStream_t stream);
// dlogits of `type` written over the logits: row r begins where row r of the logits did. The incoming gradients may be
// null.
struct LogProbBackward {
  float* logits;
  const int64_t* target;
  const float *lse, *entropy, *dlog_prob, *dentropy;
  int64_t rows, vocabulary;
  float inverse_temperature;
};
void log_prob_backward(Type type, const LogProbBackward& p, cudaStream_t stream);

// Adds a block of attention into an accumulated one (kernels/attention.h, merge_attention_). lse (tokens, heads).
struct MergeAttention {
  float *out, *lse;
  const void* part_out;
  const float* part_lse;
  int64_t tokens, heads, head_dim;
};
void merge_attention(Type type, const MergeAttention& p, cudaStream_t stream);

// partial[i], i < sum_of_squares_blocks(): fp64 sums of squares of parts of x; together all of x.
struct SumOfSquares {
  const float* x;
  double* partial;
  int64_t count;
};
int64_t sum_of_squares_blocks();
void sum_of_squares(const SumOfSquares& p, cudaStream_t stream);

// AdamW on a run of elements; weights of `type` follow the masters (null: they are the masters).
struct AdamW {
  const float* gradient;
  float *master, *first_moment, *second_moment;
  void* weight;
  int64_t count;
  float gradient_scale, beta1, beta2, eps, weight_decay_factor, step_size, inverse_root_correction2;
};
void adamw(Type type, const AdamW& p, cudaStream_t stream);

}  // namespace ringfold::cuda
