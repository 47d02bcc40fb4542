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

double CostModel::vision_us(int64_t vision_tokens, CpSize c) const {
  return us_per_vision_token * static_cast<double>(vision_tokens) / c.value();
}

CostModel::Hop CostModel::hop(CpSize c) const {
  return c.value() > node_size ? Hop{cross_node_hop_latency_us, cross_node_bytes_per_us}
                               : Hop{hop_latency_us, node_bytes_per_us};
}

CostModel::Traffic CostModel::traffic(CpSize c) const {
  if (c.value() == 1 || layers == 0) return {};
  const double others = c.value() - 1;
  // Gathered KV: one exchange forward; backward gathers again and sends gradients home.
  if (comm == CpCommType::kAllGather) return {1, 2, others, kBackwardTraffic * others, 0};
  if (comm == CpCommType::kA2a) {
    // Every rank keeps its own share of the heads. Forward: q, k, v out, the output home. Backward: q, k, v, the output
    // and its gradient out, dq, dk, dv home: twice as much. Nothing is computed meanwhile.
    const double copies = kv_heads > 0 ? std::max(1.0, c.value() / static_cast<double>(kv_heads)) : 1;
    const double queries = kv_bytes_per_token_layer > 0 ? query_bytes_per_token_layer / kv_bytes_per_token_layer : 0;
    const double forward_kv = others / c.value() * (2 * queries + copies);
    return {2, 2, forward_kv, 2 * forward_kv, 0};
  }
  // A ring makes c - 1 hops a layer and pass; each hides under the attention of one of the c ring steps.
  return {others, others, others, kBackwardTraffic * others, others / c.value()};
}

double CostModel::pack_us(int64_t rank_tokens, double attention, CpSize c, double vision) const {
  const double compute = fixed_us + us_per_token * static_cast<double>(rank_tokens) + attention + vision;
  if (c.value() == 1 || layers == 0) return compute;
  const Hop link = hop(c);
  const Traffic sent = traffic(c);
  const double kv_us = static_cast<double>(rank_tokens) * kv_bytes_per_token_layer / link.bytes_per_us;
  const double hidden_us = attention / layers * sent.hidden_share;
  const double exposed =
      std::max(0.0, sent.forward_hops * link.latency_us + sent.forward_kv * kv_us - kForwardShare * hidden_us) +
      std::max(0.0, sent.backward_hops * link.latency_us + sent.backward_kv * kv_us - kBackwardShare * hidden_us);
  return compute + layers * exposed;
}

double CostModel::pack_us(std::span<const int64_t> lengths, CpSize c, std::span<const int64_t> vision_tokens) const {
  int64_t rank_tokens = 0;
  double attention = 0, vision = 0;
  for (const int64_t length : lengths) {
    rank_tokens += padded_length(length, c) / c.value();
    attention += attention_us(length, c);
  }
  for (const int64_t tokens : vision_tokens) vision += vision_us(tokens, c);
  return pack_us(rank_tokens, attention, c, vision);
}

CostModel CostModel::on_h200(const ModelShape& shape) {
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
  model.query_bytes_per_token_layer = shape.query_width * kBf16Bytes;
  model.kv_heads = shape.kv_heads;
  model.hop_latency_us = model.cross_node_hop_latency_us = 25;
  model.node_bytes_per_us = 250e3;
  model.cross_node_bytes_per_us = 45e3;
  return model;
}

CostModel CostModel::qwen3_4b_h200() {
  return on_h200({.active_parameters = 4e9, .layers = 36, .query_width = 4096, .kv_width = 8 * 128, .kv_heads = 8});
}

CostModel CostModel::qwen3_30b_a3b_h200() {
  return on_h200({.active_parameters = 3.3e9, .layers = 48, .query_width = 4096, .kv_width = 4 * 128, .kv_heads = 4});
}

CostModel CostModel::megatron_small_h200() {
  return on_h200(
      {.active_parameters = 0.87e9, .layers = 12, .query_width = 2048, .kv_width = 16 * 128, .kv_heads = 16});
}

double lower_bound_us(std::span<const int64_t> lengths, int lane_size, int64_t budget, const CostModel& cost,
                      std::span<const int64_t> vision_tokens) {
  if (lengths.empty()) return 0;
  double work_us = 0, longest_us = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t length = lengths[i];
    const int64_t vision = vision_tokens.empty() ? 0 : vision_tokens[i];
    tokens += length;
    // The budget forces this CP size on it; attention over the shorter chunks of a wider group is no faster.
    const CpSize need{budget > 0 ? static_cast<int>(next_power_of_2(ceil_div(length, budget))) : 1};
    work_us += cost.us_per_token * static_cast<double>(length) + need.value() * cost.attention_us(length, need) +
               cost.vision_us(vision, CpSize{1});
    double alone_us = cost.pack_us(std::span(&length, 1), CpSize{1}, std::span(&vision, 1));
    for (int c = 2; c <= lane_size; c *= 2)
      alone_us = std::min(alone_us, cost.pack_us(std::span(&length, 1), CpSize{c}, std::span(&vision, 1)));
    longest_us = std::max(longest_us, alone_us);
  }
  const double micro_steps =
      budget > 0
          ? std::ceil(static_cast<double>(tokens) / (static_cast<double>(lane_size) * static_cast<double>(budget)))
          : std::ceil(static_cast<double>(lengths.size()) / lane_size);
  return std::max({work_us / lane_size, longest_us, micro_steps * cost.fixed_us});
}

}  // namespace ringfold
