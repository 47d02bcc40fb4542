// What holds for every input: the validator is silent, the load rule is kept, nothing depends on chance.
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <algorithm>
#include <chrono>
#include <random>

#include "plan/plan_support.h"
#include "ringfold/base/pow2.h"
#include "ringfold/plan/validator.h"

namespace ringfold {
namespace {

using testing::request_of;

enum class Kind { kStatic, kStaticByWork, kUniform, kMixedLockstep, kMixedFree };
constexpr Kind kKinds[] = {Kind::kStatic, Kind::kStaticByWork, Kind::kUniform, Kind::kMixedLockstep, Kind::kMixedFree};

Topology topology_of(Kind kind, int dp, int max_cp, int64_t budget) {
  auto settings = testing::dynamic_settings(dp * max_cp, budget * max_cp, budget);
  settings.cp_policy_given = true;
  const bool mixed = kind == Kind::kMixedLockstep || kind == Kind::kMixedFree;
  settings.cp_policy = mixed ? CpPolicy::kMixed : kind == Kind::kUniform ? CpPolicy::kUniform : CpPolicy::kStatic;
  settings.execution = kind == Kind::kMixedFree ? Execution::kFree : Execution::kLockstep;
  settings.execution_given = true;
  settings.static_balance = kind == Kind::kStaticByWork ? PackBalance::kWork : PackBalance::kTokens;
  return derive_topology(settings);
}

// Checks that need nothing of the planner or the validator.
void check_load_rule(const Plan& plan, int64_t budget) {
  for (const MicroStep& step : plan.micro_steps) {
    for (const PlannedGroup& group : step.groups) {
      const int64_t load = group.padded_tokens.front();
      const int64_t c = group.cp_size.value();
      const bool excused = group.samples.size() == 1 && group.lengths[0] <= budget * c;
      RC_ASSERT(load <= budget || excused);
    }
  }
}

void check_plan(const PlanRequest& request) {
  const auto plan = make_plan(request);
  RC_ASSERT(plan.ok());
  RC_ASSERT(plan_violations(request, plan.value()).empty());
  if (request.budget > 0) check_load_rule(plan.value(), request.budget);
  RC_ASSERT(plan.value().summary.lower_bound_us <= plan.value().summary.makespan_us * (1 + 1e-12));
  const auto again = make_plan(request);
  RC_ASSERT(plan_to_json(plan.value()) == plan_to_json(again.value()));
  RC_ASSERT(plan_fingerprint(plan.value()) == plan_fingerprint(again.value()));
}

rc::Gen<std::vector<int64_t>> lengths_up_to(int64_t limit) {
  // Half of the samples are tiny, so that giants meet dwarfs.
  return rc::gen::container<std::vector<int64_t>>(rc::gen::oneOf(
      rc::gen::inRange<int64_t>(1, limit + 1), rc::gen::inRange<int64_t>(1, std::min<int64_t>(limit, 4) + 1)));
}

RC_GTEST_PROP(EveryPolicy, plans_any_lengths_within_the_rules, ()) {
  const Kind kind = *rc::gen::elementOf(std::vector<Kind>(std::begin(kKinds), std::end(kKinds)));
  const int max_cp = 1 << *rc::gen::inRange(0, 7);
  const int dp = *rc::gen::inRange(1, 6);
  const int64_t budget = *rc::gen::oneOf(rc::gen::inRange<int64_t>(1, 9), rc::gen::inRange<int64_t>(1, 5000));
  const Topology topology = topology_of(kind, dp, max_cp, budget);
  check_plan(request_of(topology, *lengths_up_to(topology.max_context)));
}

RC_GTEST_PROP(EveryPolicy, gives_each_sample_a_pack_without_a_budget, ()) {
  ParallelSettings settings;
  settings.context_parallel_size = 1 << *rc::gen::inRange(0, 4);
  settings.world_size = settings.context_parallel_size * *rc::gen::inRange(1, 5);
  settings.context_parallel_size_given = true;
  check_plan(request_of(derive_topology(settings), *lengths_up_to(1000)));
}

RC_GTEST_PROP(Uniform, gives_each_micro_step_the_least_size_its_longest_sample_allows, ()) {
  const int max_cp = 1 << *rc::gen::inRange(0, 4);
  const int64_t budget = *rc::gen::inRange<int64_t>(1, 3000);
  const Topology topology = topology_of(Kind::kUniform, *rc::gen::inRange(1, 4), max_cp, budget);
  const auto plan = make_plan(request_of(topology, *lengths_up_to(topology.max_context)));
  for (const MicroStep& step : plan.value().micro_steps) {
    int64_t longest = 0;
    for (const auto& group : step.groups) {
      longest = std::max(longest, *std::max_element(group.lengths.begin(), group.lengths.end()));
    }
    for (const auto& group : step.groups) {
      RC_ASSERT(group.cp_size.value() >= next_power_of_2(ceil_div(longest, budget)));
    }
    RC_ASSERT((static_cast<int>(step.idle_ranks.size()) % max_cp) == 0);  // only whole replicas run fillers
  }
}

TEST(OddCases, every_policy_plans_them_at_every_size) {
  const std::vector<std::vector<int64_t>> shapes = {
      {1}, {2}, {3}, {1, 1}, {1, 2, 3}, {7}, {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31}, std::vector<int64_t>(100, 1)};
  for (int max_cp = 1; max_cp <= 64; max_cp *= 2) {
    for (const int dp : {1, 2, 3, 7}) {
      for (const int64_t budget : {31, 32, 997}) {
        for (const Kind kind : kKinds) {
          const Topology topology = topology_of(kind, dp, max_cp, budget);
          for (auto lengths : shapes) {
            for (const bool giant : {false, true}) {
              if (giant) lengths.push_back(budget * max_cp);
              const auto request = request_of(topology, lengths);
              const auto plan = make_plan(request);
              ASSERT_TRUE(plan.ok()) << plan.reason();
              ASSERT_TRUE(plan_violations(request, plan.value()).empty()) << plan_violations(request, plan.value())[0];
            }
          }
        }
      }
    }
  }
}

TEST(OddCases, one_to_three_tokens_alone_run_at_the_largest_size) {
  for (const int64_t tokens : {1, 2, 3}) {
    for (int max_cp = 1; max_cp <= 64; max_cp *= 2) {
      const auto plan = make_plan(request_of(topology_of(Kind::kUniform, 1, max_cp, 100), {tokens}));
      ASSERT_EQ(plan.value().micro_steps.size(), 1u);
      EXPECT_EQ(plan.value().micro_steps[0].groups[0].cp_size.value(), max_cp);
    }
  }
}

TEST(OddCases, an_empty_sample_is_refused_by_name) {
  try {
    make_plan(request_of(topology_of(Kind::kUniform, 1, 2, 100), {5, 0}));
    FAIL();
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "[plan] sample 1 is empty: got 0 tokens, expected at least 1. Hint: drop the sample.");
  }
}

TEST(OddCases, a_tiny_budget_with_many_samples_ends_quickly) {
  const auto start = std::chrono::steady_clock::now();
  for (const Kind kind : kKinds) {
    std::vector<int64_t> lengths(1500, 1);
    lengths.push_back(64);
    ASSERT_TRUE(make_plan(request_of(topology_of(kind, 1, 64, 1), lengths)).ok());
  }
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
            120.0);  // seconds, under sanitizers too
}

TEST(StaticByWork, is_no_slower_than_static_by_tokens_on_spread_out_lengths) {
  std::mt19937_64 random(5);
  std::lognormal_distribution<double> law(7.5, 1.0);
  double by_tokens = 0, by_work = 0;
  for (int step = 0; step < 10; ++step) {
    std::vector<int64_t> lengths(256);
    for (auto& length : lengths) length = std::clamp<int64_t>(static_cast<int64_t>(law(random)), 1, 32768);
    by_tokens += make_plan(request_of(topology_of(Kind::kStatic, 4, 4, 8192), lengths)).value().summary.makespan_us;
    by_work += make_plan(request_of(topology_of(Kind::kStaticByWork, 4, 4, 8192), lengths)).value().summary.makespan_us;
  }
  EXPECT_LT(by_work, by_tokens);
}

TEST(Planning, thousands_of_samples_take_well_under_a_second) {
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> law(7.8, 0.9);
  std::vector<int64_t> lengths(4096);
  for (auto& length : lengths) length = std::clamp<int64_t>(static_cast<int64_t>(law(random)), 1, 32768);
  const auto request = request_of(topology_of(Kind::kUniform, 16, 4, 8192), lengths);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(make_plan(request).ok());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(seconds, 1.0);
  RecordProperty("seconds", std::to_string(seconds));
}

}  // namespace
}  // namespace ringfold
