// The plan: which sample, in which micro-step, on which group, at which CP size, for one optimizer step.
// A plain value, equal on every rank; choosing (planner.h) and doing (train/step.cpp) meet only here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ringfold/base/ids.h"
#include "ringfold/plan/settings.h"

namespace ringfold {

// A sample as the planner sees it.
struct SampleLength {
  SampleId id;
  int64_t tokens = 0;         // real tokens, prompt + response; at least 1
  int64_t vision_tokens = 0;  // that the vision tower makes of its images
};

// One pack on one CP group: aligned block [first_rank, first_rank + cp_size) of the lane.
struct PlannedGroup {
  CpSize cp_size{1};
  LaneRank first_rank{0};
  std::vector<SampleId> samples;       // in pack order, ascending
  std::vector<int64_t> lengths;        // real tokens of each sample, same order
  std::vector<int64_t> real_tokens;    // per group rank: real tokens of its zigzag shard
  std::vector<int64_t> padded_tokens;  // per group rank: its load, sum of padded(L, c) / c (equal on all ranks)
  double cost_us = 0;                  // predicted time of the pack
  int order = 0;                       // position in the one global order of groups
  double start_us = 0;                 // predicted start within the step

  bool holds(LaneRank rank) const { return rank >= first_rank && rank.value() < first_rank.value() + cp_size.value(); }
};

// Groups that may run at the same time: disjoint in ranks. Ranks in no group run a filler (lockstep) or wait (free).
struct MicroStep {
  std::vector<PlannedGroup> groups;  // by first rank
  std::vector<LaneRank> idle_ranks;

  // The group that holds the rank; nullptr for an idle rank.
  const PlannedGroup* group_of(LaneRank rank) const;
};

struct PlanSummary {
  int64_t tokens = 0;                  // real tokens of the step
  int64_t sum_squared_tokens = 0;      // sum of L^2, for attention FLOPs
  double padding_waste = 0;            // padded / real - 1
  std::vector<double> cp_token_share;  // entry l: share of real tokens run at c = 2^l; size log2(S) + 1 or more
  double makespan_us = 0;              // predicted
  double static_makespan_us = 0;       // predicted for static CP = S packed by tokens
  double lower_bound_us = 0;           // T*
};

struct Plan {
  static constexpr int kSchema = 1;
  Topology topology;
  int64_t budget = 0;  // b of this plan (the log-prob pass has its own)
  std::vector<MicroStep> micro_steps;
  PlanSummary summary;
};

// A sample's length with pads: a multiple of 2c (c = 1: no pads). Each rank of its group holds a c-th of it.
int64_t padded_length(int64_t tokens, CpSize c);
// Real tokens of a sample that group rank `index` of `c` owns under zigzag (chunks index and 2c-1-index).
int64_t zigzag_real_tokens(int64_t tokens, CpSize c, int index);

// The interface JSON (docs/reference/plan_json.md, schema 1); `plan_ms` is added when it is >= 0.
std::string plan_to_json(const Plan& plan, double plan_ms = -1);
// A plan back from that JSON, checked: groups are aligned blocks inside the lane, disjoint in a micro-step; each sample
// once; times and counts in range. What the JSON does not hold stays unset: lengths, but of packs of one sample, and
// sum_squared_tokens. `where` begins each message. DataError names the key, the value and the remedy.
Plan plan_from_json(const std::string& text, const std::string& where);
// A table for people: micro-steps, groups, tokens per GPU, and what static CP would cost.
std::string plan_to_text(const Plan& plan);
// Hash of everything that ranks must agree on.
uint64_t plan_fingerprint(const Plan& plan);

}  // namespace ringfold
