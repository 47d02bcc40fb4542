#include "ringfold/train/planning.h"

#include <fmt/format.h>

#include <chrono>

#include "ringfold/mesh/failure.h"
#include "ringfold/report/cost_model_file.h"

namespace ringfold {

ModelShape model_shape(const ModelConfig& config) {
  return {.active_parameters = static_cast<double>(config.matrix_parameter_count()),
          .layers = static_cast<int>(config.num_hidden_layers),
          .query_width = static_cast<double>(config.num_attention_heads * config.head_dim),
          .kv_width = static_cast<double>(config.num_key_value_heads * config.head_dim),
          .kv_heads = static_cast<int>(config.num_key_value_heads)};
}

CostModel cost_model_of_run(const RunSettings& settings, const ModelConfig& config, const Topology& topology) {
  CostModel cost =
      settings.cost_model.empty() ? CostModel::on_h200(model_shape(config)) : cost_model_of(settings.cost_model);
  cost.comm = topology.cp_comm_type;
  return cost;
}

TimedPlan plan_step(const Session& session, const StepBatch& batch, int64_t budget, int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  PlanRequest request;
  request.samples = batch.lengths();
  request.topology = session.topology;
  request.budget = budget;
  request.cost = session.cost;
  Result<Plan> result = make_plan(request);
  if (!result.ok()) throw Error(ExitCode::kNoPlan, fmt::format("[plan] step {}: {}", step, result.reason()));
  TimedPlan planned{std::move(result).value(), 0};
  planned.plan_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return planned;
}

void require_same_plan(Session& session, const Plan& plan, int64_t step) {
  const uint64_t mine = plan_fingerprint(plan);
  const std::vector<uint64_t> all = session.collectives().all_gather_u64(mine, "plan fingerprint");
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    // Every rank sees the difference; rank 0 tells.
    if (session.lane_rank != LaneRank(0)) throw ReportedElsewhere(ExitCode::kFailure);
    throw RunError(fmt::format(
        "[train] step {}: the plan of rank {} differs from that of rank 0 (fingerprint {:016x}, {:016x}). Hint: do all "
        "ranks run the same binary on the same data file?",
        step, rank, all[rank], all[0]));
  }
}

Plan agree_on_plan(Session& session, const StepBatch& batch, int64_t budget, int64_t step) {
  Plan plan = plan_step(session, batch, budget, step).plan;
  require_same_plan(session, plan, step);
  return plan;
}

}  // namespace ringfold
