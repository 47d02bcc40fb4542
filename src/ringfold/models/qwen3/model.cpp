// Legend: t local tokens (rows of this rank), h hidden or heads, g KV heads, d head dim.
#include "ringfold/models/qwen3/model.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "ringfold/attention/attention.h"
#include "ringfold/base/error.h"
#include "ringfold/device/device.h"
#include "ringfold/kernels/embedding.h"
#include "ringfold/kernels/rms_norm.h"
#include "ringfold/kernels/rope.h"
#include "ringfold/models/common/rope_table.h"
#include "ringfold/models/qwen3/fused_layer.h"
#include "ringfold/models/qwen3/recompute.h"

namespace ringfold {
namespace {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
}

// Rows of real tokens, (t, 1) bool; undefined when every row is real.
at::Tensor real_rows(const PackLayout& layout, at::Device device) {
  if (!layout.has_padding()) return {};
  const std::vector<uint8_t>& is_real = layout.is_real();
  const at::Tensor rows = at::empty({layout.local_tokens(), 1}, at::TensorOptions(at::kBool));
  std::transform(is_real.begin(), is_real.end(), rows.data_ptr<bool>(), [](uint8_t real) { return real != 0; });
  return to_device(rows, device);
}

}  // namespace

at::Tensor DenseModel::forward(const at::Tensor& ids_t, const CpContextPtr& context, Recompute recompute,
                               const GradientsDone& gradients_done) const {
  const PackLayout& layout = context->layout;
  RINGFOLD_ASSERT(ids_t.dim() == 1 && ids_t.size(0) == layout.local_tokens(), "ids do not match the layout");
  const at::Tensor real_t1 = real_rows(layout, embedding_.device());
  at::Tensor x_th;
  if (real_t1.defined()) {
    // Chosen, not multiplied: 0 * NaN would survive a product. Pad ids may be anything, also outside the vocabulary.
    const at::Tensor safe_ids_t = ids_t.masked_fill(real_t1.squeeze(1).logical_not(), 0);
    x_th = at::where(real_t1, embedding_rows(embedding_, safe_ids_t), at::zeros({}, embedding_.options()));
  } else {
    x_th = embedding_rows(embedding_, ids_t);
  }
  const RopeTable rope =
      rope_table(config_, layout.positions(), at::toOpMathType(embedding_.scalar_type()), embedding_.device());
  const bool fused = recompute != Recompute::kNone && has_fused_layers(*this);
  const bool again = recompute == Recompute::kFull && at::GradMode::is_enabled();
  for (int layer = 0; layer < static_cast<int>(layers_.size()); ++layer) {
    // The gradient of a layer's input is whole after all nodes of the layer, and autograd adds up the gradients of
    // parameters as soon as it has them.
    if (gradients_done) x_th.register_hook([gradients_done, layer](const at::Tensor&) { gradients_done(layer); });
    if (fused) {
      x_th = fused_layer(*this, layer, x_th, rope.cos_td, rope.sin_td, context, again);
      continue;
    }
    x_th = again ? recomputed_layer(*this, layer, x_th, rope.cos_td, rope.sin_td, context)
                 : layer_forward(layer, x_th, rope.cos_td, rope.sin_td, context, Phase::kForward);
  }
  return rms_norm(x_th, final_norm_, config_.rms_norm_eps);
}

at::Tensor DenseModel::layer_forward(int layer, const at::Tensor& x_th, const at::Tensor& cos_td,
                                     const at::Tensor& sin_td, const CpContextPtr& context, Phase phase) const {
  const DenseLayer& at = layers_[static_cast<size_t>(layer)];
  const at::Tensor attended_th = x_th + attention_part(layer, x_th, cos_td, sin_td, context, phase);
  return attended_th + mlp_part(at, attended_th);
}

at::Tensor DenseModel::attention_part(int layer, const at::Tensor& x_th, const at::Tensor& cos_td,
                                      const at::Tensor& sin_td, const CpContextPtr& context, Phase phase) const {
  const DenseLayer& at = layers_[static_cast<size_t>(layer)];
  const int64_t tokens = x_th.size(0), heads = config_.num_attention_heads, kv_heads = config_.num_key_value_heads;
  const int64_t head_dim = config_.head_dim;
  const at::Tensor normed_th = rms_norm(x_th, at.input_norm, config_.rms_norm_eps);
  at::Tensor q_thd = linear(normed_th, at.q, at.q_bias).view({tokens, heads, head_dim});
  at::Tensor k_tgd = linear(normed_th, at.k, at.k_bias).view({tokens, kv_heads, head_dim});
  const at::Tensor v_tgd = linear(normed_th, at.v, at.v_bias).view({tokens, kv_heads, head_dim});
  if (config_.qk_norm) {
    q_thd = rms_norm(q_thd, at.q_norm, config_.rms_norm_eps);
    k_tgd = rms_norm(k_tgd, at.k_norm, config_.rms_norm_eps);
  }
  q_thd = apply_rope(q_thd, cos_td, sin_td);
  k_tgd = apply_rope(k_tgd, cos_td, sin_td);
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  const at::Tensor out_thd = cp_attention(q_thd, k_tgd, v_tgd, context, layer, scale, phase);
  return linear(out_thd.reshape({tokens, heads * head_dim}), at.o, at.o_bias);
}

at::Tensor DenseModel::mlp_part(const DenseLayer& at, const at::Tensor& x_th) const {
  const at::Tensor normed_th = rms_norm(x_th, at.post_norm, config_.rms_norm_eps);
  const at::Tensor gate = linear(normed_th, at.gate, at.gate_bias);
  const at::Tensor up = linear(normed_th, at.up, at.up_bias);
  return linear(at::silu(gate) * up, at.down, at.down_bias);
}

const at::Tensor& DenseModel::head_weight() const {
  return config_.tie_word_embeddings ? embedding_ : head_;
}

}  // namespace ringfold
