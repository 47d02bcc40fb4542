// The uniform policy: every group of a micro-step has the same CP size, chosen by the longest sample in it.
#include <algorithm>
#include <optional>

#include "ringfold/base/pow2.h"
#include "ringfold/plan/draft.h"
#include "ringfold/plan/partition.h"

namespace ringfold {
namespace {

using Items = std::vector<int>;

int64_t longest(const PackInput& input, const Items& items) {
  int64_t tokens = 0;
  for (const int item : items) tokens = std::max(tokens, input.lengths[static_cast<size_t>(item)]);
  return tokens;
}

// Shortest first, fillers before all, so that micro-batches that run at the same time on different replicas have
// similar longest samples.
void order_by_longest(const PackInput& input, std::vector<Items>& packs) {
  std::stable_sort(packs.begin(), packs.end(),
                   [&](const Items& a, const Items& b) { return longest(input, a) < longest(input, b); });
}

// Deals a replica's micro-batch to its sub-groups of size c, balanced by tokens.
void deal_to_subgroups(const PackInput& input, const Items& items, int replica, int c, DraftStep& step) {
  const int subgroups = input.max_cp / c;
  auto parts = karmarkar_karp(gather(input.lengths, items), subgroups);
  for (int g = 0; g < subgroups; ++g) {
    DraftGroup group{replica * input.max_cp + g * c, c, {}};
    for (const int position : parts[static_cast<size_t>(g)])
      group.items.push_back(items[static_cast<size_t>(position)]);
    step.push_back(std::move(group));
  }
}

// The micro-step of one micro-batch a replica, at the least CP size that serves its longest sample, gives every
// sub-group a sample, and keeps every rank within the budget. Nothing when even c = S does not.
std::optional<DraftStep> choose_cp_size(const PackInput& input, const std::vector<const Items*>& batches) {
  int64_t c = 1;
  int64_t fewest_samples = static_cast<int64_t>(input.lengths.size());
  for (const Items* items : batches) {
    if (items->empty()) continue;
    c = std::max(c, next_power_of_2(ceil_div(longest(input, *items), input.budget)));
    fewest_samples = std::min(fewest_samples, static_cast<int64_t>(items->size()));
  }
  while (c < input.max_cp && input.max_cp / c > fewest_samples) c *= 2;
  for (; c <= input.max_cp; c *= 2) {
    DraftStep step;
    for (size_t r = 0; r < batches.size(); ++r) {
      if (!batches[r]->empty()) deal_to_subgroups(input, *batches[r], static_cast<int>(r), static_cast<int>(c), step);
    }
    const bool holds = std::all_of(step.begin(), step.end(), [&](const DraftGroup& group) {
      return load_holds(input, group.items, group.cp_size);
    });
    if (holds) return step;
  }
  return std::nullopt;
}

std::optional<Draft> draft_with(const PackInput& input, const std::vector<Items>& replicas, int micro_batches) {
  ReplicaPacks packs = pack_replicas(input, replicas, micro_batches);
  for (auto& replica : packs) order_by_longest(input, replica);
  Draft draft;
  for (int k = 0; k < micro_batches; ++k) {
    std::vector<const Items*> batches;
    for (const auto& replica : packs) batches.push_back(&replica[static_cast<size_t>(k)]);
    auto step = choose_cp_size(input, batches);
    if (!step) return std::nullopt;
    draft.push_back(std::move(*step));
  }
  return draft;
}

}  // namespace

Draft uniform(const PackInput& input) {
  const auto replicas = deal_to_replicas(input);
  int micro_batches = first_micro_batch_count(input, replicas);
  for (int failures = 0;; ++failures) {
    if (auto draft = draft_with(input, replicas, micro_batches)) return std::move(*draft);
    micro_batches = next_micro_batch_count(micro_batches, failures, replicas);
  }
}

}  // namespace ringfold
