// `ringfold simulate`: policies side by side on lengths or on a law, for any number of ranks. Needs no model, no GPU.
#include "ringfold/plan/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "commands.h"
#include "lengths_source.h"
#include "output.h"
#include "ringfold/base/log.h"
#include "ringfold/data/order.h"
#include "ringfold/plan/length_laws.h"
#include "ringfold/plan/planner.h"
#include "ringfold/plan/policy_names.h"
#include "ringfold/report/cost_model_file.h"

namespace ringfold {
namespace {

using Json = nlohmann::ordered_json;

// One policy in one execution, summed over the steps.
struct Row {
  std::string policy;
  Execution execution = Execution::kLockstep;
  double total_us = 0, bound_us = 0;
  double plan_ms = 0, worst_plan_ms = 0;
  int64_t micro_steps = 0;
  std::vector<double> busy_us;    // per lane rank
  std::vector<double> tokens_at;  // real tokens by log2 of the CP size
  double tokens = 0;

  double idle(double busy) const { return total_us > 0 ? 1 - busy / total_us : 0; }
  double mean_idle() const {
    return idle(std::accumulate(busy_us.begin(), busy_us.end(), 0.0) / static_cast<double>(busy_us.size()));
  }
  double worst_idle() const { return idle(*std::min_element(busy_us.begin(), busy_us.end())); }
  double share(size_t level) const { return tokens > 0 ? tokens_at[level] / tokens : 0; }
};

// Dynamic CP as a matter of course; a law brings its context length and budget along.
ParallelSettings parallel_of(const RunSettings& settings, const CommandOptions& options, const Lengths& lengths) {
  ParallelSettings parallel = settings.parallel;
  parallel.dynamic_context_parallel = parallel.use_dynamic_batch_size = parallel.calculate_per_token_loss = true;
  const LengthLawInfo* law = law_named(options.law);
  if (parallel.max_tokens_per_gpu == 0 && law != nullptr) parallel.max_tokens_per_gpu = law->budget_tokens;
  if (parallel.rollout_max_context_len == 0) {
    for (const SampleLength& sample : lengths.samples) {
      parallel.rollout_max_context_len = std::max(parallel.rollout_max_context_len, sample.tokens);
    }
    if (law != nullptr) parallel.rollout_max_context_len = law->longest_tokens;
  }
  // The budget may be left to the law; without either, derive_topology names the flag.
  parallel.cp_policy = CpPolicy::kMixed;
  parallel.cp_policy_given = true;
  return parallel;
}

void add_step(Row& row, const PlanRequest& request, double noise, uint64_t seed) {
  const auto begin = std::chrono::steady_clock::now();
  const Result<Plan> result = make_plan(with_policy(request, row.policy, row.execution));
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (!result.ok()) throw Error(ExitCode::kNoPlan, result.reason());
  const Plan& plan = result.value();
  const SimulatedStep step = simulate_step(plan, noise, seed);
  row.plan_ms += ms;
  row.worst_plan_ms = std::max(row.worst_plan_ms, ms);
  row.total_us += step.step_us;
  row.bound_us += plan.summary.lower_bound_us;
  row.micro_steps += static_cast<int64_t>(plan.micro_steps.size());
  row.busy_us.resize(step.busy_us.size(), 0.0);
  for (size_t r = 0; r < step.busy_us.size(); ++r) row.busy_us[r] += step.busy_us[r];
  const auto& shares = plan.summary.cp_token_share;
  if (shares.size() > row.tokens_at.size()) row.tokens_at.resize(shares.size(), 0.0);
  for (size_t l = 0; l < shares.size(); ++l) row.tokens_at[l] += shares[l] * static_cast<double>(plan.summary.tokens);
  row.tokens += static_cast<double>(plan.summary.tokens);
}

std::string text_of(const std::vector<Row>& rows, double steps, bool timing) {
  std::string text = fmt::format("\n{:<32} {:>10} {:>6} {:>9} {:>6} {:>6} {:>6}  {}\n", "policy", "step ms", "T/T*",
                                 "vs first", "idle %", "worst", "steps", "% of tokens at c = 1, 2, 4, ...");
  for (const Row& row : rows) {
    std::string shares;
    for (size_t l = 0; l < row.tokens_at.size(); ++l)
      shares += fmt::format("{}{:.0f}", l > 0 ? " " : "", 100 * row.share(l));
    text += fmt::format("{:<32} {:>10.1f} {:>6.3f} {:>8.2f}x {:>6.1f} {:>6.1f} {:>6.1f}  {}\n",
                        describe_policy(row.policy, row.execution), row.total_us / steps / 1e3,
                        row.total_us / row.bound_us, rows.front().total_us / row.total_us, 100 * row.mean_idle(),
                        100 * row.worst_idle(), static_cast<double>(row.micro_steps) / steps, shares);
    if (timing)
      text += fmt::format("  planning {:.2f} ms a step, at most {:.2f} ms\n", row.plan_ms / steps, row.worst_plan_ms);
  }
  return text +
         fmt::format(
             "\nT*, the physical limit: {:.1f} ms a step. idle: share of the step a rank waits, mean and worst rank.\n",
             rows.front().bound_us / steps / 1e3);
}

Json json_of(const Row& row, const Row& first, double steps, bool timing) {
  Json shares = Json::object(), idle = Json::array();
  for (size_t l = 0; l < row.tokens_at.size(); ++l) shares[std::to_string(int64_t{1} << l)] = row.share(l);
  for (const double busy : row.busy_us) idle.push_back(row.idle(busy));
  Json json = {{"policy", row.policy},
               {"execution", to_string(row.execution)},
               {"step_ms", row.total_us / steps / 1e3},
               {"lower_bound_ms", row.bound_us / steps / 1e3},
               {"time_over_bound", row.total_us / row.bound_us},
               {"speed_up_over_first", first.total_us / row.total_us},
               {"mean_idle", row.mean_idle()},
               {"worst_idle", row.worst_idle()},
               {"micro_steps", static_cast<double>(row.micro_steps) / steps},
               {"cp_token_share", std::move(shares)},
               {"idle_per_rank", std::move(idle)}};
  if (timing) json["plan_ms"] = row.plan_ms / steps, json["worst_plan_ms"] = row.worst_plan_ms;
  return json;
}

}  // namespace

int run_simulate(const RunSettings& settings, const CommandOptions& options) {
  const LaunchEnv env = read_launch_env();
  if (env.rank.value() > 0) return 0;
  const Lengths lengths = load_lengths_of(settings, options, settings.parallel.rollout_max_context_len);
  ParallelSettings parallel = parallel_of(settings, options, lengths);
  parallel.world_size = world_size_of(settings, options, env);
  const Topology topology = derive_topology(parallel);
  if (!lengths.skipped.empty()) log::warning(lengths.skipped);

  const auto samples = static_cast<int64_t>(lengths.samples.size());
  int64_t steps = steps_per_epoch(samples, settings.global_batch_size);
  if (options.simulated_steps > 0) steps = std::min(steps, options.simulated_steps);
  CostModel cost = cost_model_of(settings.cost_model);
  cost.comm = topology.cp_comm_type;
  std::vector<Row> rows;
  for (const Execution execution : {Execution::kLockstep, Execution::kFree}) {
    if (settings.parallel.execution_given && settings.parallel.execution != execution) continue;
    if (topology.pp > 1 && execution == Execution::kFree) continue;  // a pipeline runs in lockstep
    for (const std::string& policy : options.compare) {
      rows.push_back(Row());
      rows.back().policy = policy;
      rows.back().execution = execution;
    }
  }
  for (int64_t step = 1; step <= steps; ++step) {
    PlanRequest request;
    request.topology = topology;
    request.budget = topology.budget;
    request.cost = cost;
    request.passes.off = options.skip_passes;
    request.samples = batch_of(lengths.samples, settings, step);
    for (Row& row : rows) add_step(row, request, options.noise, settings.seed + static_cast<uint64_t>(step));
  }

  if (options.json) {
    Json json = {{"schema", 1},
                 {"world_size", topology.world_size},
                 {"tp", topology.tp},
                 {"pp", topology.pp},
                 {"max_cp", topology.max_cp},
                 {"dp", topology.dp},
                 {"budget", topology.budget},
                 {"samples", samples},
                 {"steps", steps},
                 {"tokens", static_cast<int64_t>(rows.front().tokens)},
                 {"lengths", Json::array()},
                 {"policies", Json::array()}};
    for (const SampleLength& sample : lengths.samples) json["lengths"].push_back(sample.tokens);
    for (const Row& row : rows) {
      json["policies"].push_back(json_of(row, rows.front(), static_cast<double>(steps), options.timing));
    }
    write_stdout(json.dump() + "\n");
    return 0;
  }
  write_stdout(
      fmt::format("{} samples, {:.0f} tokens, {} step{} on {} ranks = tp {} x pp {} x dp {} x cp {}; budget {} "
                  "tokens per GPU; times by the {} cost model\n",
                  samples, rows.front().tokens, steps, steps == 1 ? "" : "s", topology.world_size, topology.tp,
                  topology.pp, topology.dp, topology.max_cp, topology.budget, settings.cost_model) +
      text_of(rows, static_cast<double>(steps), options.timing));
  return 0;
}

}  // namespace ringfold
