#include <cmath>
#include <nlohmann/json.hpp>

#include "ringfold/plan/plan.h"

namespace ringfold {
namespace {

using Json = nlohmann::ordered_json;

// Nanoseconds are finer than any prediction; rounding keeps the text short.
double rounded_us(double us) {
  return std::round(us * 1e3) / 1e3;
}

Json group_json(const PlannedGroup& group) {
  Json ranks = Json::array();
  for (int r = 0; r < group.cp_size.value(); ++r) ranks.push_back(group.first_rank.value() + r);
  Json samples = Json::array();
  for (const SampleId id : group.samples) samples.push_back(id.value());
  return {{"cp_size", group.cp_size.value()},
          {"ranks", std::move(ranks)},
          {"samples", std::move(samples)},
          {"real_tokens", group.real_tokens},
          {"padded_tokens", group.padded_tokens},
          {"cost", rounded_us(group.cost_us)},
          {"order", group.order},
          {"start_us", rounded_us(group.start_us)}};
}

Json step_json(const MicroStep& step) {
  Json groups = Json::array();
  for (const PlannedGroup& group : step.groups) groups.push_back(group_json(group));
  Json idle = Json::array();
  for (const LaneRank rank : step.idle_ranks) idle.push_back(rank.value());
  return {{"groups", std::move(groups)}, {"idle_ranks", std::move(idle)}};
}

Json summary_json(const PlanSummary& summary) {
  Json share = Json::object();
  for (size_t l = 0; l < summary.cp_token_share.size(); ++l) {
    share[std::to_string(int64_t{1} << l)] = summary.cp_token_share[l];
  }
  return {{"tokens", summary.tokens},
          {"padding_waste", summary.padding_waste},
          {"cp_token_share", std::move(share)},
          {"makespan", rounded_us(summary.makespan_us)},
          {"static_makespan", rounded_us(summary.static_makespan_us)},
          {"lower_bound", rounded_us(summary.lower_bound_us)}};
}

}  // namespace

std::string plan_to_json(const Plan& plan, double plan_ms) {
  const Topology& t = plan.topology;
  Json micro_steps = Json::array();
  for (const MicroStep& step : plan.micro_steps) micro_steps.push_back(step_json(step));
  Json json = {{"schema", Plan::kSchema},
               {"policy", to_string(t.policy)},
               {"mode", to_string(t.execution)},
               {"world_size", t.world_size},
               {"tp", t.tp},
               {"pp", t.pp},
               {"max_cp", t.max_cp},
               {"dp", t.dp},
               {"budget", plan.budget},
               {"micro_steps", std::move(micro_steps)},
               {"summary", summary_json(plan.summary)}};
  if (plan_ms >= 0) json["plan_ms"] = plan_ms;
  return json.dump();
}

}  // namespace ringfold
