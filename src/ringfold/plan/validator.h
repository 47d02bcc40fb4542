// Checks a plan against its request with code that shares nothing with the planner.
#pragma once

#include <string>
#include <vector>

#include "ringfold/plan/planner.h"

namespace ringfold {

// Violations in words, empty when the plan is valid: every sample exactly once; no group without samples; groups
// aligned power-of-two blocks, disjoint inside a micro-step; loads recomputed from lengths within the budget (a pack
// of one sample may exceed it by that sample's own padding); idle ranks are exactly those in no group; predicted starts
// and makespan are those of running it, in lockstep or as per-rank queues whose groups all meet.
std::vector<std::string> plan_violations(const PlanRequest& request, const Plan& plan);

}  // namespace ringfold
