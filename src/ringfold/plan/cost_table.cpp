#include "ringfold/plan/cost_table.h"

#include <bit>
#include <cmath>
#include <numeric>

#include "ringfold/base/pow2.h"
#include "ringfold/plan/plan.h"

namespace ringfold {
namespace {

int level_of(int64_t size) {
  return std::countr_zero(static_cast<uint64_t>(size));
}

}  // namespace

CostTable::CostTable(const PackInput& input)
    : lane_(input.dp * input.max_cp), static_level_(level_of(input.max_cp)), budget_(input.budget) {
  const int in_lane = static_cast<int>(previous_power_of_2(lane_));
  const int largest = input.widest_cp > 0 ? std::min(in_lane, input.widest_cp) : in_lane;
  levels_ = level_of(largest) + 1;
  const auto node = static_cast<int>(previous_power_of_2(std::max(input.cost->node_size, 1)));
  node_level_ = level_of(std::clamp(node, input.max_cp, largest));
  fill_levels(*input.cost);
  fill_samples(input);
  find_bounds();
}

void CostTable::fill_levels(const CostModel& cost) {
  fixed_ns_ = std::llround(cost.fixed_us * 1e3);
  linear_ps_ = std::llround(cost.us_per_token * 1e6);
  for (int level = 0; level < levels_; ++level) {
    const CostModel::Traffic sent = cost.traffic(CpSize{1 << level});
    LevelCost level_cost;
    if (level > 0 && cost.layers > 0) {
      const CostModel::Hop link = cost.hop(CpSize{1 << level});
      level_cost.forward_latency_ns = std::llround(cost.layers * sent.forward_hops * link.latency_us * 1e3);
      level_cost.backward_latency_ns = std::llround(cost.layers * sent.backward_hops * link.latency_us * 1e3);
      level_cost.hop_ps =
          std::llround(cost.layers * sent.forward_kv * cost.kv_bytes_per_token_layer / link.bytes_per_us * 1e6);
      // Whole, so that no plan changes by a rounding: 3 for travelling keys and values, 2 for travelling heads.
      level_cost.backward_hops = std::llround(sent.backward_kv / sent.forward_kv);
      level_cost.hidden_q20 = std::llround(sent.hidden_share * (1 << 20));
    }
    level_costs_.push_back(level_cost);
  }
}

void CostTable::fill_samples(const PackInput& input) {
  const size_t n = input.lengths.size();
  order_.resize(n);
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
    return input.lengths[static_cast<size_t>(a)] > input.lengths[static_cast<size_t>(b)];
  });
  costs_.reserve(n * static_cast<size_t>(levels_));
  for (const int item : order_) {
    const int64_t length = input.lengths[static_cast<size_t>(item)];
    lengths_.push_back(length);
    need_.push_back(level_of(next_power_of_2(ceil_div(length, budget_))));
    for (int level = 0; level < levels_; ++level) {
      const CpSize c{1 << level};
      SampleCost cost;
      cost.tokens = padded_length(length, c) / c.value();
      cost.attention_ns =
          std::llround((input.cost->attention_us(length, c) + input.cost->vision_us(vision_of(input, item), c)) * 1e3);
      cost.marginal_ns = cost.tokens * linear_ps_ / 1000 + cost.attention_ns;
      cost.alone_ns = pack_ns(level, cost.tokens, cost.attention_ns);
      costs_.push_back(cost);
    }
    const auto least = costs_.end() - levels_ + need_.back();
    work_ns_.push_back(length * linear_ps_ / 1000 + (int64_t{1} << need_.back()) * least->attention_ns);
  }
}

int64_t CostTable::least_alone_ns(int sample, int most) const {
  int64_t least = cost(sample, need(sample)).alone_ns;
  for (int level = need(sample) + 1; level <= most; ++level) least = std::min(least, cost(sample, level).alone_ns);
  return least;
}

double CostTable::work_within(int64_t limit_ns) const {
  double work = 0;
  for (int s = 0; s < samples(); ++s) {
    double least = -1;
    for (int level = need(s); level < levels_; ++level) {
      const SampleCost& at = cost(s, level);
      if (at.alone_ns > limit_ns) continue;
      const double own = static_cast<double>(at.marginal_ns) * (1 << level);
      if (least < 0 || own < least) least = own;
    }
    work += std::max(least, 0.0);
  }
  return work;
}

void CostTable::find_bounds() {
  if (samples() == 0) return;
  const double lane = lane_;
  double work = 0, tokens = 0;
  int longest = 0;
  for (int s = 0; s < samples(); ++s) {
    work += static_cast<double>(work_ns(s));
    tokens += static_cast<double>(length(s));
    const int64_t alone = least_alone_ns(s, levels_ - 1);
    if (alone > longest_bound_ns_) longest_bound_ns_ = alone, longest = s;
  }
  compute_bound_ns_ = static_cast<int64_t>(work / lane);

  // Packs that the budget forces, over all ranks: each costs the fixed time.
  const double packs_ns = static_cast<double>(fixed_ns_) * tokens / (lane * static_cast<double>(budget_));
  int64_t low = std::max(longest_bound_ns_, static_cast<int64_t>(work / lane + packs_ns)), high = 2 * low;
  for (int i = 0; i < 12; ++i) {
    const int64_t middle = low + (high - low) / 2;
    const bool fits = work_within(middle) <= lane * (static_cast<double>(middle) - packs_ns);
    (fits ? high : low) = middle;
  }
  free_bound_ns_ = low;

  // Lockstep: while the slowest sample runs, the lane holds no more than the densest lane * budget tokens.
  double room = lane * static_cast<double>(budget_), densest = 0;
  for (int s = 0; s < samples() && room > 0; ++s) {  // longer is denser
    const double share = std::min(1.0, room / static_cast<double>(length(s)));
    densest += share * static_cast<double>(work_ns(s));
    room -= share * static_cast<double>(length(s));
  }
  const double other_steps = std::ceil(tokens / (lane * static_cast<double>(budget_))) - 1;
  const double others = (work - densest) / lane + other_steps * static_cast<double>(fixed_ns_);
  const int64_t with_longest = least_alone_ns(longest, levels_ - 1) + static_cast<int64_t>(others);
  lockstep_bound_ns_ = std::max(free_bound_ns_, with_longest);
}

}  // namespace ringfold
