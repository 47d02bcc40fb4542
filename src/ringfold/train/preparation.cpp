#include "ringfold/train/preparation.h"

namespace ringfold {

std::vector<PackInputs> prepare_inputs(const Session& session, const StepBatch& batch, const Plan& plan) {
  std::vector<PackInputs> inputs;
  for (const MicroStep& micro_step : plan.micro_steps) {
    const PlannedGroup* group = micro_step.group_of(session.lane_rank);
    if (group == nullptr) continue;
    const int index = session.lane_rank.value() - group->first_rank.value();
    const PackLayout layout(group->lengths, group->cp_size.value(), index);
    inputs.push_back(pack_inputs(batch, *group, layout, ScoredRows::kLossTokens, at::kCPU));
  }
  return inputs;
}

PreparedStep prepare_step(const Session& session, StepBatch batch, int64_t step) {
  TimedPlan planned = plan_step(session, batch, session.topology.budget, step);
  std::vector<PackInputs> inputs = prepare_inputs(session, batch, planned.plan);
  return {std::move(batch), std::move(planned), std::move(inputs)};
}

}  // namespace ringfold
