// The project's own GPU kernels as functions on tensors (fp32 or bf16, CUDA, contiguous): each does in one pass what
// plain operations do in several. No autograd: callers bring forward and backward together. A twin file stands in where
// the program is built without CUDA. Sums and gradients of norm weights are fp32.
// Legend: n rows, w width, t tokens, h query heads, g KV heads, d head dim, v vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include "ringfold/kernels/varlen_attention.h"

namespace ringfold::fused {

struct Normed {
  at::Tensor y_nw;
  at::Tensor inverse_rms_n;
};
// rms_norm.h; width a multiple of 8.
Normed rms_norm(const at::Tensor& x_nw, const at::Tensor& weight_w, double eps);
// dx, with dresidual: the gradient that reaches x past the norm (may be undefined); y again, for the gradient of what
// follows the norm, where `with_y`. The weight's gradient is added to dweight (fp32).
struct NormGrads {
  at::Tensor dx_nw, y_nw;
};
NormGrads rms_norm_backward(const at::Tensor& dy_nw, const at::Tensor& x_nw, const at::Tensor& weight_w,
                            const at::Tensor& inverse_rms_n, const at::Tensor& dresidual_nw,
                            const at::Tensor& dweight_w, bool with_y);

// Splits (t, (h + 2 g) d) into heads; q and k normalised over d (weights may be undefined: no norm) and rotated.
struct HeadNorm {
  at::Tensor q_weight_d, k_weight_d;
  double eps = 0;
};
struct Heads {
  at::Tensor q_thd, k_tgd, v_tgd;
};
Heads qkv_heads(const at::Tensor& qkv, const HeadShape& shape, const HeadNorm& norm, const at::Tensor& cos_td,
                const at::Tensor& sin_td);
struct HeadNormGrads {
  at::Tensor q_weight_d, k_weight_d;  // fp32; undefined without norm
};
// Returns dqkv; the gradients of the norms' weights are added to `sums`.
at::Tensor qkv_heads_backward(const Heads& grads, const at::Tensor& qkv, const HeadShape& shape, const HeadNorm& norm,
                              const at::Tensor& cos_td, const at::Tensor& sin_td, const HeadNormGrads& sums);

// silu(gate) * up of (n, 2 w), gate first; w a multiple of 8.
at::Tensor swiglu(const at::Tensor& gate_up);
// dgate_up, and a = swiglu(gate_up) again for the gradient of what follows.
struct SwigluGrads {
  at::Tensor dgate_up, a_nw;
};
SwigluGrads swiglu_backward(const at::Tensor& da_nw, const at::Tensor& gate_up);

struct RowScores {
  at::Tensor log_prob_n, entropy_n, lse_n, greedy_n;
};
// Of fp32 logits divided by the temperature.
RowScores log_prob(const at::Tensor& logits_nv, const at::Tensor& target_n, double temperature);
// Gradient of the logits in `type`, written over them: uses them up, and its rows are as far apart in bytes as theirs.
// The incoming gradients may be undefined.
at::Tensor log_prob_backward(const at::Tensor& logits_nv, const at::Tensor& target_n, const at::Tensor& lse_n,
                             const at::Tensor& entropy_n, const at::Tensor& dlog_prob_n, const at::Tensor& dentropy_n,
                             double temperature, at::ScalarType type);

// out = a b, or addend + a b; the addend may be `out` itself. Factors bf16 (product.h says how they may lie), out bf16
// or fp32. The same bits each time.
void product(const at::Tensor& out, const at::Tensor& addend, const at::Tensor& a, const at::Tensor& b);

// attention.h, merge_attention_: fp32 accumulator, lse token-major in memory on both sides.
void merge_attention(AttentionBlock& accumulated, const AttentionBlock& block);

// Sum of squares of a run of fp32 elements, fp64, on the device; the same bits each time.
at::Tensor sum_of_squares(const at::Tensor& flat);

struct AdamWCall {
  double gradient_scale, beta1, beta2, eps, weight_decay_factor, step_size, inverse_root_correction2;
};
// One run of elements, fp32; `weight` of half precision follows the master (undefined: the master is the weight).
void adamw(const at::Tensor& gradient, const at::Tensor& master, const at::Tensor& first_moment,
           const at::Tensor& second_moment, const at::Tensor& weight, const AdamWCall& call);

}  // namespace ringfold::fused
