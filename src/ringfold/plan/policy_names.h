// Names of policies and cost models on the command line, as `plan`, `simulate` and `bench` compare them.
#pragma once

#include <string>
#include <vector>

#include "ringfold/plan/planner.h"

namespace ringfold {

// static, static_work, static_arrival, uniform, mixed
const std::vector<std::string>& policy_choices();
// "static CP by work, lockstep"
std::string describe_policy(const std::string& name, Execution execution);
// The same request under another policy.
PlanRequest with_policy(PlanRequest request, const std::string& name, Execution execution);

const std::vector<std::string>& cost_model_choices();
CostModel cost_model_named(const std::string& name);

}  // namespace ringfold
