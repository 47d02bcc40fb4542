#include "ringfold/plan/cost_model.h"

#include <algorithm>
#include <cmath>

#include "ringfold/base/pow2.h"
#include "ringfold/plan/plan.h"

namespace ringfold {
namespace {

// FlashAttention does 2 of the 7 units of attention work in the forward pass and 5 in the backward pass.
constexpr double kForwardShare = 2.0 / 7.0;
constexpr double kBackwardShare = 5.0 / 7.0;
// Backward moves K and V in bf16 and their gradients in fp32: three times the forward bytes.
constexpr double kBackwardTraffic = 3.0;

struct Shape {
  double active_parameters = 0;
  int layers = 0;
  double query_width = 0;  // heads x head size
  double kv_width = 0;     // KV heads x head size
};

CostModel on_h200(const Shape& shape) {
  constexpr double kFixedUsPerLayer = 90;      // launches of a layer, forward and backward
  constexpr double kLinearFlopsPerUs = 650e6;  // large matrix products in bf16
  constexpr double kBf16Bytes = 2;
  CostModel model;
  model.fixed_us = kFixedUsPerLayer * shape.layers;
  model.us_per_token = 6 * shape.active_parameters / kLinearFlopsPerUs;
  model.attention_flops_per_token2 = 7 * shape.layers * shape.query_width;
  model.rate_length_tokens = {512, 2048, 4096, 8192, 16384};
  model.rate_flops_per_us = {210e6, 430e6, 510e6, 530e6, 550e6};
  model.layers = shape.layers;
  model.kv_bytes_per_token_layer = 2 * shape.kv_width * kBf16Bytes;
  model.hop_latency_us = 25;
  model.node_bytes_per_us = 250e3;
  model.cross_node_bytes_per_us = 45e3;
  return model;
}

}  // namespace

double CostModel::attention_rate(double length_tokens) const {
  const auto& x = rate_length_tokens;
  const auto& y = rate_flops_per_us;
  if (length_tokens <= x.front()) return y.front() * length_tokens / x.front();
  if (length_tokens >= x.back()) return y.back();
  const size_t hi = static_cast<size_t>(std::upper_bound(x.begin(), x.end(), length_tokens) - x.begin());
  const double t = std::log(length_tokens / x[hi - 1]) / std::log(x[hi] / x[hi - 1]);
  return y[hi - 1] + t * (y[hi] - y[hi - 1]);
}

double CostModel::attention_us(int64_t length, CpSize c) const {
  const double tokens = static_cast<double>(length);
  return attention_flops_per_token2 * tokens * tokens / (c.value() * attention_rate(tokens / c.value()));
}

double CostModel::pack_us(int64_t rank_tokens, double attention, CpSize c) const {
  const double compute = fixed_us + us_per_token * static_cast<double>(rank_tokens) + attention;
  if (c.value() == 1 || layers == 0) return compute;
  // A ring of c ranks makes c - 1 hops a layer; each hides under the attention of one of the c ring steps.
  const double bandwidth = c.value() > node_size ? cross_node_bytes_per_us : node_bytes_per_us;
  const double hop_us = static_cast<double>(rank_tokens) * kv_bytes_per_token_layer / bandwidth;
  const double step_us = attention / layers / c.value();
  const double exposed = std::max(0.0, hop_latency_us + hop_us - kForwardShare * step_us) +
                         std::max(0.0, hop_latency_us + kBackwardTraffic * hop_us - kBackwardShare * step_us);
  return compute + layers * (c.value() - 1) * exposed;
}

double CostModel::pack_us(std::span<const int64_t> lengths, CpSize c) const {
  int64_t rank_tokens = 0;
  double attention = 0;
  for (const int64_t length : lengths) {
    rank_tokens += padded_length(length, c) / c.value();
    attention += attention_us(length, c);
  }
  return pack_us(rank_tokens, attention, c);
}

CostModel CostModel::qwen3_4b_h200() {
  return on_h200({.active_parameters = 4e9, .layers = 36, .query_width = 4096, .kv_width = 8 * 128});
}

CostModel CostModel::qwen3_30b_a3b_h200() {
  return on_h200({.active_parameters = 3.3e9, .layers = 48, .query_width = 4096, .kv_width = 4 * 128});
}

CostModel CostModel::megatron_small_h200() {
  return on_h200({.active_parameters = 0.87e9, .layers = 12, .query_width = 2048, .kv_width = 16 * 128});
}

double lower_bound_us(std::span<const int64_t> lengths, int lane_size, int64_t budget, const CostModel& cost) {
  if (lengths.empty()) return 0;
  double work_us = 0, longest_us = 0;
  int64_t tokens = 0;
  for (const int64_t length : lengths) {
    tokens += length;
    // The budget forces this CP size on it; attention over the shorter chunks of a wider group is no faster.
    const CpSize need{budget > 0 ? static_cast<int>(next_power_of_2(ceil_div(length, budget))) : 1};
    work_us += cost.us_per_token * static_cast<double>(length) + need.value() * cost.attention_us(length, need);
    double alone_us = cost.pack_us(std::span(&length, 1), CpSize{1});
    for (int c = 2; c <= lane_size; c *= 2)
      alone_us = std::min(alone_us, cost.pack_us(std::span(&length, 1), CpSize{c}));
    longest_us = std::max(longest_us, alone_us);
  }
  const double micro_steps =
      budget > 0
          ? std::ceil(static_cast<double>(tokens) / (static_cast<double>(lane_size) * static_cast<double>(budget)))
          : std::ceil(static_cast<double>(lengths.size()) / lane_size);
  return std::max({work_us / lane_size, longest_us, micro_steps * cost.fixed_us});
}

}  // namespace ringfold
