// The plan of a step as the run uses it: made on every rank, compared before use.
#pragma once

#include "ringfold/plan/planner.h"
#include "ringfold/train/batch.h"
#include "ringfold/train/session.h"

namespace ringfold {

struct AgreedPlan {
  Plan plan;
  double plan_ms = 0;  // largest over ranks would need a collective; this rank's
};

// Plans the batch with the budget and compares the fingerprint over the lane. Throws RunError naming the ranks that
// planned differently, and Error(kNoPlan) with the planner's reason when there is no plan.
AgreedPlan agree_on_plan(Session& session, const StepBatch& batch, int64_t budget, int64_t step);

}  // namespace ringfold
