#include "ringfold/plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ringfold/plan/draft.h"
#include "ringfold/plan/partition.h"
#include "ringfold/plan/validator.h"

namespace ringfold {
namespace {

// The reason why a sample has no place in any plan, empty when all have one.
std::string misfit(const PlanRequest& request) {
  const Topology& t = request.topology;
  for (const SampleLength& sample : request.samples) {
    if (t.max_context > 0 && sample.tokens > t.max_context) {
      return fmt::format(
          "[plan] sample {} is too long: got {} tokens, expected at most --rollout-max-context-len {}. "
          "Hint: raise it, or drop the sample.",
          sample.id.value(), sample.tokens, t.max_context);
    }
    if (request.budget > 0 && sample.tokens > request.budget * t.max_cp) {
      return fmt::format(
          "[plan] sample {} does not fit: got {} tokens, expected at most {} tokens per GPU x CP size {} = "
          "{}. Hint: raise the token budget or the CP size.",
          sample.id.value(), sample.tokens, request.budget, t.max_cp, request.budget * t.max_cp);
    }
  }
  return "";
}

PlannedGroup write_group(const PlanRequest& request, const DraftGroup& draft) {
  PlannedGroup group;
  group.cp_size = CpSize{draft.cp_size};
  group.first_rank = LaneRank{draft.first_rank};
  std::vector<SampleLength> samples;
  for (const int item : draft.items) samples.push_back(request.samples[static_cast<size_t>(item)]);
  std::sort(samples.begin(), samples.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  group.real_tokens.assign(static_cast<size_t>(draft.cp_size), 0);
  std::vector<int64_t> vision_tokens;
  int64_t load = 0;
  for (const SampleLength& sample : samples) {
    vision_tokens.push_back(sample.vision_tokens);
    group.samples.push_back(sample.id);
    group.lengths.push_back(sample.tokens);
    load += padded_length(sample.tokens, group.cp_size) / draft.cp_size;
    for (int r = 0; r < draft.cp_size; ++r) {
      group.real_tokens[static_cast<size_t>(r)] += zigzag_real_tokens(sample.tokens, group.cp_size, r);
    }
  }
  group.padded_tokens.assign(static_cast<size_t>(draft.cp_size), load);
  group.cost_us = request.cost.pack_us(group.lengths, group.cp_size, vision_tokens);
  return group;
}

MicroStep write_step(const PlanRequest& request, DraftStep& draft) {
  std::sort(draft.begin(), draft.end(), [](const auto& a, const auto& b) { return a.first_rank < b.first_rank; });
  MicroStep step;
  int next_rank = 0;
  const auto idle_until = [&](int end) {
    for (; next_rank < end; ++next_rank) step.idle_ranks.push_back(LaneRank{next_rank});
  };
  for (const DraftGroup& group : draft) {
    idle_until(group.first_rank);
    step.groups.push_back(write_group(request, group));
    next_rank = group.first_rank + group.cp_size;
  }
  idle_until(request.topology.lane_size());
  return step;
}

// Writes order and predicted times. In lockstep every micro-step waits for its slowest group; free, a group waits only
// for its own ranks. Returns the makespan.
double schedule(std::vector<MicroStep>& steps, const Topology& topology) {
  std::vector<double> ready_us(static_cast<size_t>(topology.lane_size()), 0.0);
  double end_us = 0;
  int order = 0;
  for (MicroStep& step : steps) {
    const double step_start_us = end_us;
    for (PlannedGroup& group : step.groups) {
      const auto first = ready_us.begin() + group.first_rank.value();
      const auto last = first + group.cp_size.value();
      group.order = order++;
      group.start_us = topology.execution == Execution::kFree ? *std::max_element(first, last) : step_start_us;
      std::fill(first, last, group.start_us + group.cost_us);
      end_us = std::max(end_us, group.start_us + group.cost_us);
    }
  }
  return end_us;
}

PlanSummary summarise(const Plan& plan, const PackInput& input) {
  PlanSummary summary;
  for (const int64_t length : input.lengths) {
    summary.tokens += length;
    summary.sum_squared_tokens += length * length;
  }
  int64_t padded = 0;
  std::vector<int64_t> tokens_at(static_cast<size_t>(std::countr_zero(static_cast<unsigned>(input.max_cp))) + 1, 0);
  for (const MicroStep& step : plan.micro_steps) {
    for (const PlannedGroup& group : step.groups) {
      const int c = group.cp_size.value();
      padded += group.padded_tokens.front() * c;
      const size_t level = static_cast<size_t>(std::countr_zero(static_cast<unsigned>(c)));
      if (level >= tokens_at.size()) tokens_at.resize(level + 1, 0);
      for (const int64_t length : group.lengths) tokens_at[level] += length;
    }
  }
  const double tokens = static_cast<double>(std::max<int64_t>(summary.tokens, 1));
  if (summary.tokens > 0) summary.padding_waste = static_cast<double>(padded - summary.tokens) / tokens;
  for (const int64_t at : tokens_at) summary.cp_token_share.push_back(static_cast<double>(at) / tokens);
  return summary;
}

// Writes a draft out as a plan.
Plan write_plan(const PlanRequest& request, const PackInput& input, const PlanSummary& fixed_facts, Draft draft) {
  Plan plan;
  plan.topology = request.topology;
  plan.budget = request.budget;
  for (DraftStep& step : draft) plan.micro_steps.push_back(write_step(request, step));
  const double makespan_us = schedule(plan.micro_steps, request.topology);
  plan.summary = summarise(plan, input);
  plan.summary.makespan_us = makespan_us;
  plan.summary.static_makespan_us = fixed_facts.static_makespan_us;
  plan.summary.lower_bound_us = fixed_facts.lower_bound_us;
  return plan;
}

#ifdef RINGFOLD_VALIDATE_PLANS
void check_plan(const PlanRequest& request, const Plan& plan, std::string_view made_by) {
  const auto violations = plan_violations(request, plan);
  RINGFOLD_ASSERT(violations.empty(), fmt::format("invalid plan after {}: {}", made_by, fmt::join(violations, "; ")));
}
#endif

Draft choose(const PackInput& input, const Topology& t, const PassControl& passes, const DraftCheck& check) {
  if (input.budget == 0) return one_sample_packs(input);
  switch (t.policy) {
    case CpPolicy::kStatic:
      return t.static_balance == PackBalance::kWork      ? static_by_work(input)
             : t.static_balance == PackBalance::kArrival ? static_by_arrival(input)
                                                         : static_by_tokens(input);
    case CpPolicy::kUniform:
      return uniform(input);
    case CpPolicy::kMixed:
      return mixed(input, t.execution, passes, check);
  }
  RINGFOLD_ASSERT(false, "every policy is listed");
  return {};
}

}  // namespace

PackInput pack_input(const PlanRequest& request) {
  PackInput input;
  input.lengths.reserve(request.samples.size());
  for (const SampleLength& sample : request.samples) {
    if (sample.tokens < 1) {
      throw DataError(
          fmt::format("[plan] sample {} is empty: got {} tokens, expected at least 1. Hint: drop the sample.",
                      sample.id.value(), sample.tokens));
    }
    input.lengths.push_back(sample.tokens);
    if (sample.vision_tokens == 0 && input.vision_tokens.empty()) continue;
    input.vision_tokens.resize(input.lengths.size() - 1, 0);
    input.vision_tokens.push_back(sample.vision_tokens);
  }
  input.dp = request.topology.dp;
  input.max_cp = request.topology.max_cp;
  input.widest_cp = request.topology.widest_cp();
  input.budget = request.budget;
  input.cost = &request.cost;
  return input;
}

Result<Plan> make_plan(const PlanRequest& request) {
  const PackInput input = pack_input(request);
  if (std::string reason = misfit(request); !reason.empty()) return Result<Plan>::infeasible(std::move(reason));

  PlanSummary facts;
  if (!input.lengths.empty()) {
    const Draft baseline = input.budget == 0 ? one_sample_packs(input) : static_by_tokens(input);
    facts.static_makespan_us = execution_us(input, baseline, request.topology.execution);
  }
  facts.lower_bound_us =
      lower_bound_us(input.lengths, request.topology.lane_size(), input.budget, request.cost, input.vision_tokens);

  DraftCheck check;
#ifdef RINGFOLD_VALIDATE_PLANS
  check = [&](std::string_view pass, const Draft& draft) {
    check_plan(request, write_plan(request, input, facts, draft), pass);
  };
#endif
  Draft draft;
  if (!input.lengths.empty()) draft = choose(input, request.topology, request.passes, check);
  if (check) check("the last pass", draft);
  return write_plan(request, input, facts, std::move(draft));
}

}  // namespace ringfold
