// Requests for planner tests, and the recipe keys of case files.
#pragma once

#include <cstdint>
#include <vector>

#include "ringfold/plan/planner.h"

namespace ringfold::testing {

// The flags that every dynamic CP run carries.
inline ParallelSettings dynamic_settings(int world, int64_t context, int64_t budget) {
  ParallelSettings s;
  s.world_size = world;
  s.dynamic_context_parallel = s.use_dynamic_batch_size = s.calculate_per_token_loss = true;
  s.rollout_max_context_len = context;
  s.max_tokens_per_gpu = budget;
  return s;
}

// Samples 0, 1, 2 ... of these lengths.
inline PlanRequest request_of(const Topology& topology, const std::vector<int64_t>& lengths) {
  PlanRequest request;
  request.topology = topology;
  request.budget = topology.budget;
  for (size_t i = 0; i < lengths.size(); ++i) {
    request.samples.push_back({SampleId{static_cast<int64_t>(i)}, lengths[i]});
  }
  return request;
}

inline PlanRequest dynamic_request(int world, int64_t context, int64_t budget, const std::vector<int64_t>& lengths) {
  return request_of(derive_topology(dynamic_settings(world, context, budget)), lengths);
}

inline int64_t largest_load(const Plan& plan) {
  int64_t largest = 0;
  for (const MicroStep& step : plan.micro_steps) {
    for (const PlannedGroup& group : step.groups) largest = std::max(largest, group.padded_tokens.front());
  }
  return largest;
}

}  // namespace ringfold::testing
