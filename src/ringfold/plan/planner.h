// Lengths in, plan out. Pure and deterministic: the same request gives the same bytes on every rank and every run.
#pragma once

#include <vector>

#include "ringfold/base/error.h"
#include "ringfold/plan/cost_model.h"
#include "ringfold/plan/passes.h"
#include "ringfold/plan/plan.h"

namespace ringfold {

struct PlanRequest {
  std::vector<SampleLength> samples;  // of one step, in input order (policies depend on it)
  Topology topology;
  int64_t budget = 0;  // topology.budget, or topology.log_probs_budget for a forward-only pass; 0: one sample a pack
  CostModel cost = CostModel::qwen3_4b_h200();
  PassControl passes;  // of the `mixed` policy
};

// The plan of one step by the topology's policy; validated (validator.h) in debug and test builds, `mixed` after every
// pass. Infeasible, with the reason, when a sample cannot fit b * S. An empty request gives a plan without micro-steps.
Result<Plan> make_plan(const PlanRequest& request);

}  // namespace ringfold
