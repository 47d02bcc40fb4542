#include "ringfold/rollout/paged_decoder.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ringfold/base/error.h"
#include "ringfold/base/pow2.h"
#include "ringfold/device/device.h"
#include "ringfold/device/release_memory.h"
#include "ringfold/models/common/rope_table.h"
#include "ringfold/models/qwen3/fused_layer.h"

namespace ringfold {
namespace {

constexpr int64_t kInputs = 5;  // of a row (PagedDecoder::Step)

// Recordings cost two steps each: few sizes, and little work for rows without a sequence.
int64_t round_rows(int64_t sequences) {
  if (sequences > 4) return round_up(sequences, 8);
  return sequences == 3 ? 4 : sequences;
}

PageShape page_shape(const DenseModel& model, const DecoderLimits& limits) {
  const ModelConfig& config = model.config();
  const at::Device device = model.embedding().device();
  PageShape shape;
  shape.page_tokens = fused::kPageTokens;
  shape.sequences = std::min(limits.sequences, fused::kMaxDecodedRows);
  shape.pages_per_sequence = ceil_div(limits.tokens, fused::kPageTokens);
  const int64_t page_bytes = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim *
                             fused::kPageTokens * static_cast<int64_t>(model.embedding().element_size());
  // What a step needs beside the cache: logits and partial sums of attention.
  constexpr int64_t kReserveBytes = int64_t{2} << 30;
  release_cached_memory(device);
  const int64_t room = device_memory(device).free_bytes / 10 * 9 - kReserveBytes;
  shape.pages = std::clamp<int64_t>(room / page_bytes, 0, shape.sequences * shape.pages_per_sequence);
  return shape;
}

}  // namespace

PagedDecoder::PagedDecoder(const DenseModel& model, const DecoderLimits& limits)
    : model_(model),
      device_(model.embedding().device()),
      shape_{model.config().num_attention_heads, model.config().num_key_value_heads, model.config().head_dim},
      eager_(limits.eager),
      table_(PageTable(page_shape(model, limits))) {
  const c10::NoGradGuard no_grad;
  const PageShape& pages = table_.shape();
  const auto options = model.embedding().options().requires_grad(false);
  page_table_ = at::zeros({pages.sequences, pages.pages_per_sequence}, options.dtype(at::kInt));
  for (int64_t l = 0; l < model.config().num_hidden_layers; ++l) {
    const std::vector<int64_t> sizes = {pages.pages, shape_.kv_heads, pages.page_tokens, shape_.head_dim};
    pages_.push_back({at::empty(sizes, options), at::empty(sizes, options)});
    const DenseLayer& at = model.layer(static_cast<int>(l));
    qkv_.push_back(joined_rows({at.q, at.k, at.v}));
    gate_up_.push_back(joined_rows({at.gate, at.up}));
  }
  std::vector<int64_t> positions(static_cast<size_t>(limits.tokens));
  std::iota(positions.begin(), positions.end(), int64_t{0});
  const RopeTable rope = rope_table(model.config(), positions, at::kFloat, device_);
  cos_td_ = rope.cos_td;
  sin_td_ = rope.sin_td;
}

fused::HeadNorm PagedDecoder::head_norm(size_t layer) const {
  const DenseLayer& at = model_.layer(static_cast<int>(layer));
  return {at.q_norm, at.k_norm, model_.config().rms_norm_eps};
}

template <typename Attend>
at::Tensor PagedDecoder::layers(const at::Tensor& ids_t, const Attend& attend) const {
  const double eps = model_.config().rms_norm_eps;
  const int64_t tokens = ids_t.size(0);
  const at::Tensor x_th = model_.embedding().index_select(0, ids_t);
  for (size_t l = 0; l < pages_.size(); ++l) {
    const DenseLayer& at = model_.layer(static_cast<int>(l));
    const at::Tensor qkv = at::mm(fused::rms_norm(x_th, at.input_norm, eps).y_nw, qkv_[l].t());
    x_th.addmm_(attend(l, qkv).view({tokens, -1}), at.o.t());
    const at::Tensor gate_up = at::mm(fused::rms_norm(x_th, at.post_norm, eps).y_nw, gate_up_[l].t());
    x_th.addmm_(fused::swiglu(gate_up), at.down.t());
  }
  return x_th;
}

at::Tensor PagedDecoder::logits(const at::Tensor& hidden_th) const {
  const at::Tensor normed_th = fused::rms_norm(hidden_th, model_.final_norm(), model_.config().rms_norm_eps).y_nw;
  const at::Tensor weight_hv = model_.head_weight().t();
  return hidden_th.scalar_type() == at::kFloat ? at::mm(normed_th, weight_hv)
                                               : at::mm(normed_th, weight_hv, at::kFloat);
}

at::Tensor PagedDecoder::add_prompt(const std::vector<int64_t>& prompt, int64_t copies, int64_t most_tokens) {
  RINGFOLD_ASSERT(!prompt.empty() && copies > 0, "a prompt has a token and a copy");
  const c10::NoGradGuard no_grad;
  const auto length = static_cast<int64_t>(prompt.size());
  std::vector<int64_t> rows;  // of d elements, for every copy, token and head
  for (int64_t copy = 0; copy < copies; ++copy) {
    for (const int64_t place : table_.add(length, most_tokens)) {
      for (int64_t head = 0; head < shape_.kv_heads; ++head) rows.push_back(row_of(place) + head * fused::kPageTokens);
    }
  }
  page_table_.view(-1).copy_(to_device(table_.table(), device_));
  const at::Tensor rows_n = to_device(rows, device_);
  const at::Tensor cos_td = cos_td_.slice(0, 0, length), sin_td = sin_td_.slice(0, 0, length);
  const auto store = [&](const at::Tensor& x_tgd, const at::Tensor& pages_pgtd) {
    pages_pgtd.view({-1, shape_.head_dim})
        .index_copy_(0, rows_n, x_tgd.view({-1, shape_.head_dim}).repeat({copies, 1}));
  };
  const auto batch = [](const at::Tensor& x_thd) { return x_thd.unsqueeze(0).transpose(1, 2); };
  const at::Tensor hidden_th = layers(to_device(prompt, device_), [&](size_t l, const at::Tensor& qkv) {
    const fused::Heads heads = fused::qkv_heads(qkv, shape_, head_norm(l), cos_td, sin_td);
    store(heads.k_tgd, pages_[l].k_pgtd);
    store(heads.v_tgd, pages_[l].v_pgtd);
    return at::scaled_dot_product_attention(batch(heads.q_thd), batch(heads.k_tgd), batch(heads.v_tgd), std::nullopt,
                                            0.0, /*is_causal=*/true, std::nullopt, /*enable_gqa=*/true)
        .transpose(1, 2)
        .reshape({length, -1});
  });
  return logits(hidden_th.slice(0, length - 1)).squeeze(0);
}

int64_t PagedDecoder::row_of(int64_t place) const {
  return place / fused::kPageTokens * shape_.kv_heads * fused::kPageTokens + place % fused::kPageTokens;
}

void PagedDecoder::run(Step& step) const {
  const int64_t rows = step.inputs.size(0) / (kInputs + 1);
  const auto input = [&](int64_t index) { return step.inputs.slice(0, index * rows, (index + 1) * rows); };
  const fused::PageWork work{input(2), input(3), step.inputs.slice(0, kInputs * rows), page_table_};
  const at::Tensor cos_nd = cos_td_.index_select(0, input(1)), sin_nd = sin_td_.index_select(0, input(1));
  const double scale = 1 / std::sqrt(static_cast<double>(shape_.head_dim));
  const at::Tensor hidden_nh = layers(input(0), [&](size_t l, const at::Tensor& qkv) {
    const at::Tensor q_nhd =
        fused::qkv_heads_into_pages(qkv, shape_, head_norm(l), cos_nd, sin_nd, input(4), pages_[l]);
    return fused::paged_attention(q_nhd, pages_[l], work, scale);
  });
  step.logits_nv = logits(hidden_nh);
}

PagedDecoder::Step& PagedDecoder::step_of(int64_t rows) {
  Step& step = steps_[rows];
  if (!step.inputs.defined()) {
    step.inputs = at::empty({(kInputs + 1) * rows + 1}, page_table_.options().dtype(at::kLong));
  }
  return step;
}

at::Tensor PagedDecoder::step(const std::vector<int64_t>& ids_b) {
  RINGFOLD_ASSERT(static_cast<int64_t>(ids_b.size()) == sequences(), "one token a sequence");
  const c10::NoGradGuard no_grad;
  const int64_t rows = round_rows(sequences());
  PageStep pages = table_.grow(rows);
  for (int64_t& place : pages.token) place = place < 0 ? -1 : row_of(place);
  std::vector<int64_t> inputs = ids_b;
  inputs.resize(static_cast<size_t>(rows), 0);
  for (const auto* part : {&pages.position, &pages.length, &pages.slot, &pages.token, &pages.work_begin}) {
    inputs.insert(inputs.end(), part->begin(), part->end());
  }
  Step& step = step_of(rows);
  step.inputs.copy_(to_device(inputs, device_));
  if (eager_) {
    run(step);
  } else {
    if (step.recorded == nullptr) step.recorded = std::make_unique<RecordedWork>(device_, [&] { run(step); });
    step.recorded->replay();
  }
  return step.logits_nv.slice(0, 0, sequences());
}

}  // namespace ringfold
