// The plan of a step as the run uses it: made on every rank, compared before use.
#pragma once

#include "ringfold/models/common/config.h"
#include "ringfold/plan/planner.h"
#include "ringfold/train/batch.h"
#include "ringfold/train/session.h"

namespace ringfold {

// What predicted times need of a dense model.
ModelShape model_shape(const ModelConfig& config);
// The costs that the settings name: --cost-model, else those of an H200 with this model. UsageError and DataError as in
// report/cost_model_file.h.
CostModel cost_model_of_run(const RunSettings& settings, const ModelConfig& config, const Topology& topology);

struct TimedPlan {
  Plan plan;
  double plan_ms = 0;  // largest over ranks would need a collective; this rank's
};

// Plans the batch with the budget; touches nothing else, on any thread. Error(kNoPlan) with the planner's reason when
// there is no plan.
TimedPlan plan_step(const Session& session, const StepBatch& batch, int64_t budget, int64_t step);
// Compares the fingerprint over the lane. RunError naming the ranks that planned differently.
void require_same_plan(Session& session, const Plan& plan, int64_t step);
// Both.
Plan agree_on_plan(Session& session, const StepBatch& batch, int64_t budget, int64_t step);

}  // namespace ringfold
