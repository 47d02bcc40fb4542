#include "ringfold/train/memory_estimate.h"

#include <fmt/format.h>

#include <algorithm>

#include "ringfold/base/log.h"
#include "ringfold/plan/plan.h"

namespace ringfold {
namespace {

constexpr double kTolerated = 1.1;

// Widths of a layer's rows, in values.
struct Widths {
  explicit Widths(const ModelConfig& c)
      : hidden(static_cast<double>(c.hidden_size)),
        ffn(static_cast<double>(c.intermediate_size)),
        q(static_cast<double>(c.num_attention_heads * c.head_dim)),
        kv(static_cast<double>(2 * c.num_key_value_heads * c.head_dim)),
        heads(static_cast<double>(c.num_attention_heads)) {}
  double hidden, ffn, q, kv, heads;
};

// What a layer keeps of one token, bytes. `fused`: the layers of fused_layer.h, which make norms, rotations and the
// MLP's activation again.
double kept_bytes(const Widths& w, double element, bool fused) {
  const double log_sum_exp = w.heads * std::max(element, 4.0);
  if (fused) return element * (2 * w.hidden + (w.q + w.kv) + w.q + 2 * w.ffn) + log_sum_exp;
  // Inputs of two norms and their outputs; q and k before their norms; q, k, v; attention's output; four of the MLP.
  return element * (4 * w.hidden + (w.q + w.kv / 2) + (w.q + w.kv) + w.q + 4 * w.ffn) + log_sum_exp;
}

// Temporaries of one layer's backward for one token, bytes; those of attention or of the MLP.
double backward_bytes(const Widths& w, double element, const Topology& topology) {
  const double sum = std::max(element, 4.0);  // type of gradients' sums
  double attention = element * (2 * (w.q + w.kv) + 2 * w.q) + sum * w.q;
  if (topology.max_cp > 1) {
    attention += topology.cp_comm_type == CpCommType::kAllGather ? topology.max_cp * w.kv * (element + sum)
                                                                 : w.kv * (2 * element + 3 * sum);
  }
  const double mlp = element * (4 * w.ffn + 5 * w.hidden);
  return std::max(attention, mlp);
}

// The largest load of a rank.
int64_t pack_tokens(const Topology& topology, int64_t longest, int64_t all) {
  if (topology.budget > 0) return all > 0 ? std::min(topology.budget, all) : topology.budget;
  const CpSize c(topology.max_cp);
  return padded_length(longest, c) / c.value();
}

}  // namespace

MemoryEstimate estimate_memory(const RunSettings& settings, const Topology& topology, const ModelConfig& config,
                               int64_t longest, int64_t all) {
  const double element = settings.dtype == "float64" ? 8 : settings.dtype == "bfloat16" ? 2 : 4;
  const double wide = std::max(element, 4.0);
  const auto parameters = static_cast<double>(config.parameter_count());
  const bool on_gpu = settings.device == "cuda";
  MemoryEstimate estimate;
  estimate.weights = element * parameters;
  estimate.gradients = wide * parameters;
  estimate.optimizer = wide * (element < wide ? 3 : 2) * parameters / topology.lane_size();

  estimate.tokens = pack_tokens(topology, longest, all);
  const Widths widths(config);
  const auto tokens = static_cast<double>(estimate.tokens), layers = static_cast<double>(config.num_hidden_layers);
  const bool fused = on_gpu && settings.recompute != "none", again = settings.recompute == "full";
  const double layer = tokens * kept_bytes(widths, element, fused);
  estimate.activations = layers * (again ? tokens * element * widths.hidden : layer);

  const double rows = std::min(tokens, static_cast<double>(settings.log_prob_chunk_tokens));
  // On a GPU the gradient of the logits is written over them; plain operations hold three of their size.
  const double head = rows * static_cast<double>(config.vocab_size) * wide * (on_gpu && wide == 4 ? 1 : 3) +
                      2 * tokens * widths.hidden * element;
  const double backward = tokens * backward_bytes(widths, element, topology) + (again ? layer : 0);
  estimate.workspace = std::max(head, backward);
  if (on_gpu && settings.dtype != "bfloat16") {
    // The plain attention holds scores, probabilities and a gradient of them.
    const auto keys = static_cast<double>(std::min(longest, estimate.tokens));
    estimate.workspace += 3 * widths.heads * keys * keys * wide;
  }
  return estimate;
}

std::string to_text(const MemoryEstimate& estimate, int lane_size) {
  return fmt::format(
      "{:.2f} GB a rank: weights {:.2f}, gradients {:.2f}, optimizer {:.2f}{}, activations of {} tokens {:.2f}, "
      "workspace {:.2f}",
      estimate.total() / 1e9, estimate.weights / 1e9, estimate.gradients / 1e9, estimate.optimizer / 1e9,
      lane_size > 1 ? fmt::format(" (1/{} of it)", lane_size) : "", estimate.tokens, estimate.activations / 1e9,
      estimate.workspace / 1e9);
}

void compare_with_peak(const MemoryEstimate& estimate, int64_t peak_bytes) {
  const double peak = static_cast<double>(peak_bytes);
  if (peak > kTolerated * estimate.total()) {
    log::warning(fmt::format(
        "peak memory of {:.2f} GB a rank is more than 10 % over the estimate of {:.2f} GB: trust the peak when you "
        "raise --max-tokens-per-gpu",
        peak / 1e9, estimate.total() / 1e9));
    return;
  }
  log::info(
      fmt::format("ringfold: peak memory {:.2f} GB a rank, estimated {:.2f} GB", peak / 1e9, estimate.total() / 1e9));
}

}  // namespace ringfold
