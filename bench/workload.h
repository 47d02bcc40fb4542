// The planner study's settings: a law, a lane, a number of samples.
#pragma once

#include <vector>

#include "ringfold/plan/length_laws.h"
#include "ringfold/plan/planner.h"

namespace ringfold::bench {

// Dynamic CP of `policy` on `lane` ranks, at the law's usual budget and the S that its longest sample needs.
inline PlanRequest request_for(const std::vector<int64_t>& lengths, LengthLaw law, int lane, CpPolicy policy,
                               Execution execution, const CostModel& cost) {
  ParallelSettings s;
  s.world_size = lane;
  s.dynamic_context_parallel = s.use_dynamic_batch_size = s.calculate_per_token_loss = true;
  s.rollout_max_context_len = info_of(law).longest_tokens;
  s.max_tokens_per_gpu = info_of(law).budget_tokens;
  s.cp_policy = policy;
  s.cp_policy_given = s.execution_given = true;
  s.execution = execution;
  PlanRequest request;
  request.topology = derive_topology(s);
  request.budget = request.topology.budget;
  request.cost = cost;
  for (size_t i = 0; i < lengths.size(); ++i) {
    request.samples.push_back({SampleId{static_cast<int64_t>(i)}, lengths[i]});
  }
  return request;
}

}  // namespace ringfold::bench
