#include "ringfold/kernels/fused.h"

#include <ATen/ATen.h>

#include "ringfold/base/error.h"
#include "ringfold/kernels/cuda/launch.h"
#include "ringfold/kernels/cuda/tensors.h"

namespace ringfold::fused {
namespace {

using cuda::in;
using cuda::stream_of;
using cuda::type_of;

const float* in_float(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<float>() : nullptr;
}

at::TensorOptions floats(const at::Tensor& x) {
  return x.options().dtype(at::kFloat);
}

void add_column_sums(const at::Tensor& partial, const at::Tensor& into) {
  RINGFOLD_ASSERT(into.is_contiguous() && into.numel() == partial.size(1), "one sum a column");
  cuda::add_column_sums({in_float(partial), into.data_ptr<float>(), partial.size(0), partial.size(1)},
                        stream_of(partial));
}

cuda::RmsNorm norm_params(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y,
                          const at::Tensor& inverse_rms, double eps) {
  RINGFOLD_ASSERT(x.size(-1) % 8 == 0 && x.size(-1) <= 16384, "the width of a norm is a multiple of 8");
  return {in(x),
          in(weight),
          y.data_ptr(),
          inverse_rms.data_ptr<float>(),
          x.numel() / x.size(-1),
          x.size(-1),
          static_cast<float>(eps)};
}

}  // namespace

Normed rms_norm(const at::Tensor& x_nw, const at::Tensor& weight_w, double eps) {
  const Normed result{at::empty_like(x_nw), at::empty({x_nw.numel() / x_nw.size(-1)}, floats(x_nw))};
  cuda::rms_norm_forward(type_of(x_nw), norm_params(x_nw, weight_w, result.y_nw, result.inverse_rms_n, eps),
                         stream_of(x_nw));
  return result;
}

NormGrads rms_norm_backward(const at::Tensor& dy_nw, const at::Tensor& x_nw, const at::Tensor& weight_w,
                            const at::Tensor& inverse_rms_n, const at::Tensor& dresidual_nw,
                            const at::Tensor& dweight_w, bool with_y) {
  const int64_t width = x_nw.size(-1);
  const NormGrads grads{at::empty_like(x_nw), with_y ? at::empty_like(x_nw) : at::Tensor()};
  const at::Tensor partial = at::empty({cuda::rms_norm_partial_rows(), width}, floats(x_nw));
  cuda::rms_norm_backward(
      type_of(x_nw),
      {in(dy_nw), in(x_nw), in(weight_w), in(dresidual_nw), in_float(inverse_rms_n), grads.dx_nw.data_ptr(),
       with_y ? grads.y_nw.data_ptr() : nullptr, partial.data_ptr<float>(), x_nw.numel() / width, width},
      stream_of(x_nw));
  add_column_sums(partial, dweight_w);
  return grads;
}

Heads qkv_heads(const at::Tensor& qkv, const HeadShape& s, const HeadNorm& norm, const at::Tensor& cos_td,
                const at::Tensor& sin_td) {
  const int64_t tokens = qkv.size(0);
  const Heads heads{at::empty({tokens, s.heads, s.head_dim}, qkv.options()),
                    at::empty({tokens, s.kv_heads, s.head_dim}, qkv.options()),
                    at::empty({tokens, s.kv_heads, s.head_dim}, qkv.options())};
  cuda::qkv_heads_forward(type_of(qkv),
                          {in(qkv), in(norm.q_weight_d), in(norm.k_weight_d), in_float(cos_td), in_float(sin_td),
                           heads.q_thd.data_ptr(), heads.k_tgd.data_ptr(), heads.v_tgd.data_ptr(), tokens, s.heads,
                           s.kv_heads, s.head_dim, static_cast<float>(norm.eps)},
                          stream_of(qkv));
  return heads;
}

at::Tensor qkv_heads_backward(const Heads& grads, const at::Tensor& qkv, const HeadShape& s, const HeadNorm& norm,
                              const at::Tensor& cos_td, const at::Tensor& sin_td, const HeadNormGrads& sums) {
  const at::Tensor dqkv = at::empty_like(qkv);
  at::Tensor q_partial, k_partial;
  if (norm.q_weight_d.defined()) {
    q_partial = at::empty({cuda::qkv_partial_rows(), s.head_dim}, floats(qkv));
    k_partial = at::empty_like(q_partial);
  }
  const auto out_float = [](const at::Tensor& x) { return x.defined() ? x.data_ptr<float>() : nullptr; };
  cuda::qkv_heads_backward(
      type_of(qkv),
      {in(qkv), in(norm.q_weight_d), in(norm.k_weight_d), in(grads.q_thd), in(grads.k_tgd), in(grads.v_tgd),
       in_float(cos_td), in_float(sin_td), dqkv.data_ptr(), out_float(q_partial), out_float(k_partial), qkv.size(0),
       s.heads, s.kv_heads, s.head_dim, static_cast<float>(norm.eps)},
      stream_of(qkv));
  if (q_partial.defined()) {
    add_column_sums(q_partial, sums.q_weight_d);
    add_column_sums(k_partial, sums.k_weight_d);
  }
  return dqkv;
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const int64_t width = gate_up.size(1) / 2;
  RINGFOLD_ASSERT(width % 8 == 0, "the width of the MLP is a multiple of 8");
  const at::Tensor a = at::empty({gate_up.size(0), width}, gate_up.options());
  cuda::swiglu_forward(type_of(gate_up), {in(gate_up), a.data_ptr(), gate_up.size(0), width}, stream_of(gate_up));
  return a;
}

SwigluGrads swiglu_backward(const at::Tensor& da_nw, const at::Tensor& gate_up) {
  const SwigluGrads grads{at::empty_like(gate_up), at::empty_like(da_nw)};
  cuda::swiglu_backward(
      type_of(gate_up),
      {in(da_nw), in(gate_up), grads.dgate_up.data_ptr(), grads.a_nw.data_ptr(), gate_up.size(0), gate_up.size(1) / 2},
      stream_of(gate_up));
  return grads;
}

RowScores log_prob(const at::Tensor& logits_nv, const at::Tensor& target_n, double temperature) {
  const int64_t rows = logits_nv.size(0);
  const RowScores scores{at::empty({rows}, floats(logits_nv)), at::empty({rows}, floats(logits_nv)),
                         at::empty({rows}, floats(logits_nv)), at::empty({rows}, logits_nv.options().dtype(at::kBool))};
  cuda::log_prob_forward(
      {in_float(logits_nv), target_n.const_data_ptr<int64_t>(), scores.log_prob_n.data_ptr<float>(),
       scores.entropy_n.data_ptr<float>(), scores.lse_n.data_ptr<float>(), scores.greedy_n.data_ptr<bool>(), rows,
       logits_nv.size(1), static_cast<float>(1 / temperature)},
      stream_of(logits_nv));
  return scores;
}

at::Tensor log_prob_backward(const at::Tensor& logits_nv, const at::Tensor& target_n, const at::Tensor& lse_n,
                             const at::Tensor& entropy_n, const at::Tensor& dlog_prob_n, const at::Tensor& dentropy_n,
                             double temperature, at::ScalarType type) {
  cuda::log_prob_backward(type_of(type),
                          {logits_nv.data_ptr<float>(), target_n.const_data_ptr<int64_t>(), in_float(lse_n),
                           in_float(entropy_n), in_float(dlog_prob_n), in_float(dentropy_n), logits_nv.size(0),
                           logits_nv.size(1), static_cast<float>(1 / temperature)},
                          stream_of(logits_nv));
  return logits_nv.view(type).narrow(1, 0, logits_nv.size(1));
}

void merge_attention(AttentionBlock& accumulated, const AttentionBlock& block) {
  const at::Tensor& out = accumulated.out_thd;
  cuda::merge_attention(type_of(block.out_thd),
                        {out.data_ptr<float>(), accumulated.lse_ht.data_ptr<float>(), in(block.out_thd),
                         block.lse_ht.const_data_ptr<float>(), out.size(0), out.size(1), out.size(2)},
                        stream_of(out));
}

at::Tensor sum_of_squares(const at::Tensor& flat) {
  const at::Tensor partial = at::empty({cuda::sum_of_squares_blocks()}, flat.options().dtype(at::kDouble));
  cuda::sum_of_squares({in_float(flat), partial.data_ptr<double>(), flat.numel()}, stream_of(flat));
  return partial.sum();
}

void adamw(const at::Tensor& gradient, const at::Tensor& master, const at::Tensor& first_moment,
           const at::Tensor& second_moment, const at::Tensor& weight, const AdamWCall& call) {
  const auto narrow = [](double x) { return static_cast<float>(x); };
  cuda::adamw(weight.defined() ? type_of(weight) : cuda::Type::kFloat,
              {in_float(gradient), master.data_ptr<float>(), first_moment.data_ptr<float>(),
               second_moment.data_ptr<float>(), weight.defined() ? weight.data_ptr() : nullptr, gradient.numel(),
               narrow(call.gradient_scale), narrow(call.beta1), narrow(call.beta2), narrow(call.eps),
               narrow(call.weight_decay_factor), narrow(call.step_size), narrow(call.inverse_root_correction2)},
              stream_of(gradient));
}

}  // namespace ringfold::fused
