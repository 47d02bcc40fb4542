// What a policy decides, before it is written out as a Plan: groups of items inside micro-steps. Internal to plan/.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "ringfold/plan/cost_model.h"
#include "ringfold/plan/passes.h"
#include "ringfold/plan/settings.h"

namespace ringfold {

// The lengths of one step and the lane that runs them. Every length is at least 1 and at most budget * max_cp.
struct PackInput {
  std::vector<int64_t> lengths;  // real tokens, in input order; an "item" is an index into it
  int dp = 1;                    // replicas: aligned blocks of max_cp ranks
  int max_cp = 1;                // S
  int widest_cp = 0;             // at least S: the largest CP size of `mixed`; 0: the largest power of two in the lane
  int64_t budget = 0;            // b; 0: one sample a pack
  const CostModel* cost = nullptr;
  std::vector<int64_t> vision_tokens;  // of each item; empty: none has any
};

inline int64_t vision_of(const PackInput& input, int item) {
  return input.vision_tokens.empty() ? 0 : input.vision_tokens[static_cast<size_t>(item)];
}

// What the policies need of a request, which must outlive it. DataError names an empty sample.
struct PlanRequest;
PackInput pack_input(const PlanRequest& request);

struct DraftGroup {
  int first_rank = 0;
  int cp_size = 1;
  std::vector<int> items;
};
using DraftStep = std::vector<DraftGroup>;
using Draft = std::vector<DraftStep>;

// Tokens on each rank of a group of c that runs these items: sum of padded(L, c) / c.
int64_t rank_load(const PackInput& input, std::span<const int> items, int c);
// The load rule: within the budget, or one sample that exceeds it by no more than its own padding.
bool load_holds(const PackInput& input, std::span<const int> items, int c);
// Predicted time of lockstep execution: the slowest group of every micro-step, summed.
double lockstep_us(const PackInput& input, const Draft& draft);
// Predicted time when every rank runs its own queue: the groups meet in list order, the busiest rank ends last.
double free_us(const PackInput& input, const Draft& draft);
double execution_us(const PackInput& input, const Draft& draft, Execution execution);

// Every pack at c = S. By tokens: replicas and micro-batches by Karmarkar-Karp, as Relax and Megatron users run it.
Draft static_by_tokens(const PackInput& input);
// The stronger baseline: longest work first into the least loaded bin; the best of several bin counts.
Draft static_by_work(const PackInput& input);
// The weakest baseline, as Megatron's dp_balanced packs: filled in arrival order, dealt to the replicas in turn.
Draft static_by_arrival(const PackInput& input);
// Without a budget: one sample a pack at c = S, similar lengths side by side.
Draft one_sample_packs(const PackInput& input);
// One CP size a micro-step, by its longest sample; sub-groups balanced by tokens.
Draft uniform(const PackInput& input);

// Groups of different sizes at the same time, sized by predicted time; never slower than the policies above in that
// execution. `check` sees the best plan after every pass.
using DraftCheck = std::function<void(std::string_view pass, const Draft& best)>;
Draft mixed(const PackInput& input, Execution execution, const PassControl& control, const DraftCheck& check);

// Packing of the two token-balanced policies: micro-batches of every replica, `[replica][micro-batch]`, K on each;
// fillers are empty.
using ReplicaPacks = std::vector<std::vector<std::vector<int>>>;
std::vector<std::vector<int>> deal_to_replicas(const PackInput& input);
ReplicaPacks pack_replicas(const PackInput& input, const std::vector<std::vector<int>>& replicas, int micro_batches);
// K of the first attempt: first-fit count at capacity b * S, maximum over replicas.
int first_micro_batch_count(const PackInput& input, const std::vector<std::vector<int>>& replicas);
// K after `failures` packings that broke the load rule: one more, and ever larger steps once many have failed, so that
// a budget of a few tokens does not take minutes.
int next_micro_batch_count(int micro_batches, int failures, const std::vector<std::vector<int>>& replicas);

}  // namespace ringfold
