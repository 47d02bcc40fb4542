// Legend: b sequences, t new tokens, h hidden or heads, g KV heads, s cached positions, d head dim, v vocabulary.
#include "ringfold/rollout/padded_decoder.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "ringfold/base/error.h"
#include "ringfold/device/device.h"
#include "ringfold/kernels/rms_norm.h"
#include "ringfold/kernels/rope.h"
#include "ringfold/models/common/rope_table.h"

namespace ringfold {
namespace {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
}

// (b, t, heads, d) -> (b, heads, t, d) and back is the operator's layout.
at::Tensor attention(const at::Tensor& q_bthd, const at::Tensor& k_bsgd, const at::Tensor& v_bsgd,
                     const std::optional<at::Tensor>& visible, bool causal) {
  return at::scaled_dot_product_attention(q_bthd.transpose(1, 2), k_bsgd.transpose(1, 2), v_bsgd.transpose(1, 2),
                                          visible, 0.0, causal, std::nullopt, /*enable_gqa=*/true)
      .transpose(1, 2);
}

}  // namespace

PaddedDecoder::PaddedDecoder(const DenseModel& model)
    : model_(model),
      device_(model.embedding().device()),
      cache_(static_cast<size_t>(model.config().num_hidden_layers)) {}

void PaddedDecoder::reserve(int64_t sequences, int64_t positions) {
  const at::Tensor& now = cache_.front().k_bsgd;
  const int64_t had_sequences = now.defined() ? now.size(0) : 0, had_positions = now.defined() ? now.size(1) : 0;
  if (sequences <= had_sequences && positions <= had_positions) return;
  const auto grown = [](int64_t needed, int64_t had) { return needed <= had ? had : std::max(needed, had * 3 / 2); };
  const int64_t new_sequences = std::max(sequences, had_sequences), new_positions = grown(positions, had_positions);
  const ModelConfig& config = model_.config();
  for (LayerCache& layer : cache_) {
    for (at::Tensor* side : {&layer.k_bsgd, &layer.v_bsgd}) {
      // Zeros: a masked position counts 0 times its value, which must be a number.
      at::Tensor wider_bsgd = at::zeros({new_sequences, new_positions, config.num_key_value_heads, config.head_dim},
                                        model_.embedding().options().requires_grad(false));
      if (side->defined()) wider_bsgd.slice(0, 0, had_sequences).slice(1, 0, had_positions).copy_(*side);
      *side = std::move(wider_bsgd);
    }
  }
}

template <typename Attend>
at::Tensor PaddedDecoder::layers(const at::Tensor& ids_t, const std::vector<int64_t>& positions,
                                 const Attend& attend) const {
  const ModelConfig& config = model_.config();
  const int64_t tokens = ids_t.size(0);
  const RopeTable rope = rope_table(config, positions, at::toOpMathType(model_.embedding().scalar_type()), device_);
  at::Tensor x_th = model_.embedding().index_select(0, ids_t);
  for (int64_t l = 0; l < config.num_hidden_layers; ++l) {
    const DenseLayer& at = model_.layer(static_cast<int>(l));
    const at::Tensor normed_th = rms_norm(x_th, at.input_norm, config.rms_norm_eps);
    at::Tensor q_thd = linear(normed_th, at.q, at.q_bias).view({tokens, config.num_attention_heads, config.head_dim});
    at::Tensor k_tgd = linear(normed_th, at.k, at.k_bias).view({tokens, config.num_key_value_heads, config.head_dim});
    const at::Tensor v_tgd = linear(normed_th, at.v, at.v_bias).view(k_tgd.sizes());
    if (config.qk_norm) {
      q_thd = rms_norm(q_thd, at.q_norm, config.rms_norm_eps);
      k_tgd = rms_norm(k_tgd, at.k_norm, config.rms_norm_eps);
    }
    const at::Tensor out_thd = attend(static_cast<size_t>(l), apply_rope(q_thd, rope.cos_td, rope.sin_td),
                                      apply_rope(k_tgd, rope.cos_td, rope.sin_td), v_tgd);
    const at::Tensor attended_th = x_th + linear(out_thd.reshape({tokens, -1}), at.o, at.o_bias);
    const at::Tensor mlp_th = rms_norm(attended_th, at.post_norm, config.rms_norm_eps);
    const at::Tensor gated = at::silu(linear(mlp_th, at.gate, at.gate_bias)) * linear(mlp_th, at.up, at.up_bias);
    x_th = attended_th + linear(gated, at.down, at.down_bias);
  }
  return x_th;
}

at::Tensor PaddedDecoder::logits(const at::Tensor& hidden_th) const {
  const at::Tensor normed_th = rms_norm(hidden_th, model_.final_norm(), model_.config().rms_norm_eps);
  return at::matmul(normed_th, model_.head_weight().t()).to(at::toOpMathType(hidden_th.scalar_type()));
}

at::Tensor PaddedDecoder::add_prompt(const std::vector<int64_t>& prompt, int64_t copies, int64_t /*most_tokens*/) {
  RINGFOLD_ASSERT(!prompt.empty() && copies > 0, "a prompt has a token and a copy");
  const c10::NoGradGuard no_grad;
  const auto length = static_cast<int64_t>(prompt.size());
  const int64_t first = sequences();
  reserve(first + copies, length + 1);
  std::vector<int64_t> positions;
  for (int64_t t = 0; t < length; ++t) positions.push_back(t);
  const at::Tensor hidden_th = layers(
      to_device(prompt, device_), positions,
      [&](size_t l, const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd) {
        LayerCache& cache = cache_[l];
        cache.k_bsgd.slice(0, first, first + copies).slice(1, 0, length).copy_(k_tgd.unsqueeze(0));
        cache.v_bsgd.slice(0, first, first + copies).slice(1, 0, length).copy_(v_tgd.unsqueeze(0));
        return attention(q_thd.unsqueeze(0), k_tgd.unsqueeze(0), v_tgd.unsqueeze(0), std::nullopt, /*causal=*/true)
            .squeeze(0);
      });
  lengths_.insert(lengths_.end(), static_cast<size_t>(copies), length);
  return logits(hidden_th.slice(0, length - 1)).squeeze(0);
}

at::Tensor PaddedDecoder::step(const std::vector<int64_t>& ids_b) {
  RINGFOLD_ASSERT(static_cast<int64_t>(ids_b.size()) == sequences(), "one token a sequence");
  const c10::NoGradGuard no_grad;
  const int64_t longest = *std::max_element(lengths_.begin(), lengths_.end()) + 1;
  const int64_t count = sequences();
  reserve(count, longest);
  const at::Tensor positions_b = to_device(lengths_, device_);
  const at::Tensor rows_b = at::arange(count, positions_b.options());
  const at::Tensor visible_b11s =
      at::arange(longest, positions_b.options()).unsqueeze(0).le(positions_b.unsqueeze(1)).view({count, 1, 1, longest});
  const at::Tensor hidden_bh =
      layers(to_device(ids_b, device_), lengths_,
             [&](size_t l, const at::Tensor& q_bhd, const at::Tensor& k_bgd, const at::Tensor& v_bgd) {
               LayerCache& cache = cache_[l];
               cache.k_bsgd.index_put_({rows_b, positions_b}, k_bgd);
               cache.v_bsgd.index_put_({rows_b, positions_b}, v_bgd);
               return attention(q_bhd.unsqueeze(1), cache.k_bsgd.slice(0, 0, count).slice(1, 0, longest),
                                cache.v_bsgd.slice(0, 0, count).slice(1, 0, longest), visible_b11s, /*causal=*/false)
                   .squeeze(1);
             });
  for (int64_t& length : lengths_) ++length;
  return logits(hidden_bh);
}

void PaddedDecoder::keep(const std::vector<int64_t>& rows) {
  if (static_cast<int64_t>(rows.size()) == sequences()) return;
  const at::Tensor rows_b = to_device(rows, device_);
  for (LayerCache& layer : cache_) {
    layer.k_bsgd = layer.k_bsgd.index_select(0, rows_b);
    layer.v_bsgd = layer.v_bsgd.index_select(0, rows_b);
  }
  std::vector<int64_t> lengths;
  for (const int64_t row : rows) lengths.push_back(lengths_[static_cast<size_t>(row)]);
  lengths_ = std::move(lengths);
}

}  // namespace ringfold
