// The static policies: every pack at c = S, the baselines that dynamic CP is measured against.
#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "ringfold/base/pow2.h"
#include "ringfold/plan/draft.h"
#include "ringfold/plan/plan.h"

namespace ringfold {
namespace {

using Items = std::vector<int>;

// Turns `[replica][micro-batch]` packs into micro-steps.
Draft steps_at_max_cp(const PackInput& input, ReplicaPacks packs) {
  Draft draft(packs.front().size());
  for (size_t r = 0; r < packs.size(); ++r) {
    for (size_t k = 0; k < draft.size(); ++k) {
      if (packs[r][k].empty()) continue;
      draft[k].push_back({static_cast<int>(r) * input.max_cp, input.max_cp, std::move(packs[r][k])});
    }
  }
  return draft;
}

// A count below which some pack must break the load rule: no need to try them. A lone sample may exceed the budget, so
// it counts as a full pack at most; two samples above half the budget never share one.
int least_packs(const PackInput& input, const Items& items) {
  int64_t load = 0;
  int64_t large = 0;
  for (const int item : items) {
    const int64_t own = rank_load(input, std::span(&item, 1), input.max_cp);
    load += std::min(own, input.budget);
    large += 2 * own > input.budget ? 1 : 0;
  }
  return static_cast<int>(std::max(ceil_div(load, input.budget), large));
}

// Bins of `work` that hold the items longest work first, each in the least loaded bin that still has room. Nothing when
// an item finds no room.
std::optional<std::vector<Items>> fill_bins(const PackInput& input, const Items& by_work,
                                            const std::vector<double>& work_us, size_t bins) {
  std::vector<Items> packs(bins);
  std::vector<int64_t> load(bins, 0);
  std::vector<double> work(bins, 0.0);
  int64_t least_load = input.budget;
  for (const int item : by_work) least_load = std::min(least_load, rank_load(input, std::span(&item, 1), input.max_cp));
  std::set<std::pair<double, size_t>> open_bins;  // by work; without those that are full for every item
  for (size_t bin = 0; bin < bins; ++bin) open_bins.emplace(0.0, bin);
  for (const int item : by_work) {
    const int64_t own = rank_load(input, std::span(&item, 1), input.max_cp);
    const auto lightest = std::find_if(open_bins.begin(), open_bins.end(), [&](const auto& entry) {
      return packs[entry.second].empty() || load[entry.second] + own <= input.budget;
    });
    if (lightest == open_bins.end()) return std::nullopt;
    const size_t bin = lightest->second;
    open_bins.erase(lightest);
    packs[bin].push_back(item);
    load[bin] += own;
    work[bin] += work_us[static_cast<size_t>(item)];
    if (load[bin] + least_load <= input.budget) open_bins.emplace(work[bin], bin);
  }
  std::vector<size_t> order(bins);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return work[a] > work[b]; });
  std::vector<Items> heaviest_first;
  for (const size_t bin : order) heaviest_first.push_back(std::move(packs[bin]));
  return heaviest_first;
}

}  // namespace

Draft static_by_tokens(const PackInput& input) {
  const auto replicas = deal_to_replicas(input);
  int micro_batches = first_micro_batch_count(input, replicas);
  for (const auto& items : replicas) micro_batches = std::max(micro_batches, least_packs(input, items));
  for (int failures = 0;; ++failures) {
    ReplicaPacks packs = pack_replicas(input, replicas, micro_batches);
    const bool holds = std::all_of(packs.begin(), packs.end(), [&](const auto& replica) {
      return std::all_of(replica.begin(), replica.end(),
                         [&](const Items& items) { return load_holds(input, items, input.max_cp); });
    });
    if (holds) return steps_at_max_cp(input, std::move(packs));
    micro_batches = next_micro_batch_count(micro_batches, failures, replicas);
  }
}

Draft static_by_work(const PackInput& input) {
  constexpr int kCountsTried = 4;
  std::vector<double> work_us;
  for (int item = 0; item < static_cast<int>(input.lengths.size()); ++item) {
    const CpSize c{input.max_cp};
    const int64_t length = input.lengths[static_cast<size_t>(item)];
    const int64_t load = padded_length(length, c) / c.value();
    work_us.push_back(input.cost->us_per_token * static_cast<double>(load) + input.cost->attention_us(length, c) +
                      input.cost->vision_us(vision_of(input, item), c));
  }
  Items by_work(input.lengths.size());
  std::iota(by_work.begin(), by_work.end(), 0);
  std::stable_sort(by_work.begin(), by_work.end(),
                   [&](int a, int b) { return work_us[static_cast<size_t>(a)] > work_us[static_cast<size_t>(b)]; });

  Draft best;
  double best_us = 0;
  int tried = 0;
  for (int64_t k = ceil_div(least_packs(input, by_work), input.dp); tried < kCountsTried; ++k) {
    auto bins = fill_bins(input, by_work, work_us, static_cast<size_t>(k * input.dp));
    if (!bins) continue;
    Draft draft;
    for (size_t bin = 0; bin < bins->size() && !(*bins)[bin].empty(); ++bin) {
      const int replica = static_cast<int>(bin % static_cast<size_t>(input.dp));
      if (replica == 0) draft.emplace_back();
      draft.back().push_back({replica * input.max_cp, input.max_cp, std::move((*bins)[bin])});
    }
    const double time_us = lockstep_us(input, draft);
    if (tried++ == 0 || time_us < best_us) {
      best = std::move(draft);
      best_us = time_us;
    }
  }
  return best;
}

Draft static_by_arrival(const PackInput& input) {
  std::vector<Items> packs(1);
  for (int item = 0; item < static_cast<int>(input.lengths.size()); ++item) {
    packs.back().push_back(item);
    if (load_holds(input, packs.back(), input.max_cp)) continue;
    packs.back().pop_back();
    packs.push_back({item});
  }
  // Every replica runs as many packs: the last ones give samples away until the count divides.
  const size_t dp = static_cast<size_t>(input.dp);
  for (size_t giver = packs.size(); giver-- > 0 && packs.size() % dp != 0;) {
    while (packs[giver].size() > 1 && packs.size() % dp != 0) {
      packs.push_back({packs[giver].back()});
      packs[giver].pop_back();
    }
  }
  Draft draft;
  for (size_t p = 0; p < packs.size(); ++p) {
    if (p % dp == 0) draft.emplace_back();
    draft.back().push_back({static_cast<int>(p % dp) * input.max_cp, input.max_cp, std::move(packs[p])});
  }
  return draft;
}

Draft one_sample_packs(const PackInput& input) {
  const int n = static_cast<int>(input.lengths.size());
  Items by_length(input.lengths.size());
  std::iota(by_length.begin(), by_length.end(), 0);
  std::stable_sort(by_length.begin(), by_length.end(), [&](int a, int b) {
    return input.lengths[static_cast<size_t>(a)] < input.lengths[static_cast<size_t>(b)];
  });
  // The short micro-step, if any, comes first, where it holds the shortest samples.
  Draft draft;
  int taken = 0;
  for (int width = (n - 1) % input.dp + 1; taken < n; width = input.dp) {
    DraftStep step;
    for (int r = 0; r < width; ++r) {
      step.push_back({r * input.max_cp, input.max_cp, {by_length[static_cast<size_t>(taken + r)]}});
    }
    draft.push_back(std::move(step));
    taken += width;
  }
  return draft;
}

}  // namespace ringfold
