// `ringfold plan`: a dry run over lengths. Needs no model, no torch and no other rank.
#include "ringfold/plan/plan.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>

#include "commands.h"
#include "lengths_source.h"
#include "output.h"
#include "ringfold/base/log.h"
#include "ringfold/plan/planner.h"
#include "ringfold/plan/policy_names.h"
#include "ringfold/report/plan_html.h"

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

Plan checked_plan(const PlanRequest& request) {
  Result<Plan> plan = make_plan(request);
  if (!plan.ok()) throw Error(ExitCode::kNoPlan, plan.reason());
  return std::move(plan).value();
}

// The page with this plan, static CP by tokens, and the predicted time of every policy.
void write_page(const PlanRequest& request, const Plan& plan, const std::string& file) {
  const PlanRequest baseline = with_policy(request, "static", request.topology.execution);
  PlanPage page{plan, checked_plan(baseline), {}};
  const Execution own = request.topology.execution;
  const auto add = [&](const std::string& policy, Execution execution) {
    const Plan other = checked_plan(with_policy(request, policy, execution));
    const bool shown = other.topology.policy == plan.topology.policy &&
                       other.topology.static_balance == plan.topology.static_balance && execution == own;
    page.policies.push_back({describe_policy(policy, execution), other.summary.makespan_us, shown});
  };
  if (request.budget > 0) {  // without a budget there is nothing to choose
    for (const std::string& policy : policy_choices()) add(policy, own);
    if (own == Execution::kFree) add("mixed", Execution::kLockstep);
    if (own == Execution::kLockstep && request.topology.pp == 1) add("mixed", Execution::kFree);
  }
  std::ofstream out(file, std::ios::binary);
  out << plan_to_html(page);
  if (!out.flush()) throw RunError(fmt::format("[output] cannot write {}. Hint: check the folder and the disk", file));
}

}  // namespace

int run_plan(const RunSettings& settings, const CommandOptions& options) {
  const LaunchEnv env = read_launch_env();
  // The plan is the same on every rank, and so is every refusal: one of them speaks.
  if (env.rank.value() > 0) return 0;
  ParallelSettings parallel = settings.parallel;
  parallel.world_size = world_size_of(settings, options, env);
  const Topology topology = derive_topology(parallel);
  const Lengths lengths = load_lengths_of(settings, options, topology.max_context);
  if (!lengths.skipped.empty()) log::warning(lengths.skipped);
  for (const std::string& warning : topology.warnings) log::warning(warning);

  PlanRequest request;
  request.topology = topology;
  request.budget = topology.budget;
  request.cost = cost_model_named(options.cost_model);
  request.samples = batch_of(lengths.samples, settings, options.step);
  request.passes.off = options.skip_passes;

  std::string pass_times;
  const auto begin = Clock::now();
  auto last = begin;
  request.passes.after = [&](std::string_view pass, double best_us) {
    pass_times += fmt::format("  {:<10} {:>8.3f} ms, best plan {:.1f} ms\n", pass, ms_since(last), best_us / 1e3);
    last = Clock::now();
  };
  const Plan plan = checked_plan(request);
  const double plan_ms = ms_since(begin);
  request.passes.after = nullptr;

  if (!options.html_file.empty()) write_page(request, plan, options.html_file);
  if (options.json) {
    write_stdout(plan_to_json(plan, options.timing ? plan_ms : -1) + "\n");
    return 0;
  }
  std::string text;
  for (const std::string& note : topology.notes) text += note + "\n";
  text += plan_to_text(plan);
  if (options.timing) text += fmt::format("planning took      {:.3f} ms\n{}", plan_ms, pass_times);
  if (!options.html_file.empty()) text += fmt::format("picture            {}\n", options.html_file);
  write_stdout(text);
  return 0;
}

}  // namespace ringfold
