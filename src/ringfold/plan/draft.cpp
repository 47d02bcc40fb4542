#include "ringfold/plan/draft.h"

#include <algorithm>
#include <numeric>

#include "ringfold/base/error.h"
#include "ringfold/plan/partition.h"
#include "ringfold/plan/plan.h"

namespace ringfold {
namespace {

// The parts, as items rather than as positions in `items`.
std::vector<std::vector<int>> split_items(const PackInput& input, const std::vector<int>& items, int parts) {
  auto split = karmarkar_karp(gather(input.lengths, items), parts);
  for (Part& part : split) {
    for (int& position : part) position = items[static_cast<size_t>(position)];
  }
  return split;
}

size_t most_items(const std::vector<std::vector<int>>& replicas) {
  size_t most = 0;
  for (const auto& items : replicas) most = std::max(most, items.size());
  return most;
}

}  // namespace

int64_t rank_load(const PackInput& input, std::span<const int> items, int c) {
  int64_t load = 0;
  for (const int item : items) load += padded_length(input.lengths[static_cast<size_t>(item)], CpSize{c}) / c;
  return load;
}

bool load_holds(const PackInput& input, std::span<const int> items, int c) {
  if (items.size() == 1) return input.lengths[static_cast<size_t>(items[0])] <= input.budget * c;
  return rank_load(input, items, c) <= input.budget;
}

double group_us(const PackInput& input, const DraftGroup& group) {
  int64_t load = 0;
  double attention_us = 0;
  for (const int item : group.items) {
    const int64_t length = input.lengths[static_cast<size_t>(item)];
    load += padded_length(length, CpSize{group.cp_size}) / group.cp_size;
    attention_us += input.cost->attention_us(length, CpSize{group.cp_size});
  }
  return input.cost->pack_us(load, attention_us, CpSize{group.cp_size});
}

double lockstep_us(const PackInput& input, const Draft& draft) {
  double total_us = 0;
  for (const DraftStep& step : draft) {
    double slowest_us = 0;
    for (const DraftGroup& group : step) slowest_us = std::max(slowest_us, group_us(input, group));
    total_us += slowest_us;
  }
  return total_us;
}

double free_us(const PackInput& input, const Draft& draft) {
  std::vector<double> ready_us(static_cast<size_t>(input.dp * input.max_cp), 0.0);
  double end_us = 0;
  for (const DraftStep& step : draft) {
    for (const DraftGroup& group : step) {
      const auto first = ready_us.begin() + group.first_rank;
      const double done_us = *std::max_element(first, first + group.cp_size) + group_us(input, group);
      std::fill(first, first + group.cp_size, done_us);
      end_us = std::max(end_us, done_us);
    }
  }
  return end_us;
}

double execution_us(const PackInput& input, const Draft& draft, Execution execution) {
  return execution == Execution::kFree ? free_us(input, draft) : lockstep_us(input, draft);
}

std::vector<std::vector<int>> deal_to_replicas(const PackInput& input) {
  return karmarkar_karp(input.lengths, input.dp);
}

ReplicaPacks pack_replicas(const PackInput& input, const std::vector<std::vector<int>>& replicas, int micro_batches) {
  ReplicaPacks packs;
  for (const auto& items : replicas) packs.push_back(split_items(input, items, micro_batches));
  return packs;
}

int first_micro_batch_count(const PackInput& input, const std::vector<std::vector<int>>& replicas) {
  int count = 0;
  for (const auto& items : replicas) {
    count = std::max(count, first_fit_count(gather(input.lengths, items), input.budget * input.max_cp));
  }
  return count;
}

int next_micro_batch_count(int micro_batches, int failures, const std::vector<std::vector<int>>& replicas) {
  // With one sample a pack the load rule holds, so there is no need to go further.
  const int64_t most = static_cast<int64_t>(most_items(replicas));
  RINGFOLD_ASSERT(micro_batches < most, "packs of one sample broke the load rule");
  // One more micro-batch. Only budgets of a few tokens fail so often that this would take minutes: then larger strides.
  const int64_t samples = std::accumulate(replicas.begin(), replicas.end(), int64_t{1},
                                          [](int64_t sum, const auto& items) { return sum + std::ssize(items); });
  const int64_t patience = std::max<int64_t>(16, (int64_t{1} << 19) / samples);
  return static_cast<int>(std::min(most, micro_batches + (int64_t{1} << std::min<int64_t>(failures / patience, 30))));
}

}  // namespace ringfold
