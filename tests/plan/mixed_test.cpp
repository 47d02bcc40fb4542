// The mixed policy: never slower than the others, within its bounds, whatever is switched off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <algorithm>
#include <map>
#include <numeric>

#include "plan/plan_support.h"
#include "ringfold/plan/exact.h"
#include "ringfold/plan/length_laws.h"
#include "ringfold/plan/validator.h"

namespace ringfold {
namespace {

using testing::request_of;

Topology topology_of(int lane, int64_t context, int64_t budget, CpPolicy policy, Execution execution) {
  auto settings = testing::dynamic_settings(lane, context, budget);
  settings.cp_policy_given = settings.execution_given = true;
  settings.cp_policy = policy;
  settings.execution = execution;
  return derive_topology(settings);
}

PlanRequest law_request(LengthLaw law, int lane, int64_t samples, uint64_t seed, Execution execution) {
  const LengthLawInfo& info = info_of(law);
  return request_of(topology_of(lane, info.longest_tokens, info.budget_tokens, CpPolicy::kMixed, execution),
                    draw_lengths(law, seed, samples));
}

double predicted_us(PlanRequest request, CpPolicy policy, PackBalance balance = PackBalance::kTokens) {
  request.topology.policy = policy;
  request.topology.static_balance = balance;
  return make_plan(request).value().summary.makespan_us;
}

RC_GTEST_PROP(Mixed, is_never_predicted_slower_than_static_or_uniform, ()) {
  const int max_cp = 1 << *rc::gen::inRange(0, 4);
  const int dp = *rc::gen::inRange(1, 6);
  const int64_t budget = *rc::gen::inRange<int64_t>(1, 9000);
  const auto execution = *rc::gen::element(Execution::kLockstep, Execution::kFree);
  auto lengths =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, budget * max_cp + 1)));
  auto topology = topology_of(dp * max_cp, budget * max_cp, budget, CpPolicy::kMixed, execution);
  topology.head_cp_limit = *rc::gen::element(0, max_cp, 2 * max_cp);
  auto request = request_of(topology, lengths);
  request.cost.comm = *rc::gen::element(CpCommType::kP2p, CpCommType::kAllGather, CpCommType::kA2a);
  request.cost.us_per_vision_token = *rc::gen::element(0.0, 40.0);
  for (SampleLength& sample : request.samples) sample.vision_tokens = sample.tokens % 3 == 0 ? sample.tokens / 2 : 0;
  const double mixed_us = predicted_us(request, CpPolicy::kMixed) * (1 - 1e-9);
  RC_ASSERT(mixed_us <= predicted_us(request, CpPolicy::kStatic) + 1e-3);
  RC_ASSERT(mixed_us <= predicted_us(request, CpPolicy::kStatic, PackBalance::kWork) + 1e-3);
  RC_ASSERT(mixed_us <= predicted_us(request, CpPolicy::kUniform) + 1e-3);
  RC_ASSERT(plan_violations(request, make_plan(request).value()).empty());
}

TEST(Mixed, keeps_its_promise_against_the_physical_limit) {
  // Means over the study's settings where samples are many (n / D >= 8) and where they are few; the whole table is in
  // docs/benchmarks/planner.md.
  const std::map<Execution, std::pair<double, double>> promised = {{Execution::kLockstep, {1.04, 1.08}},
                                                                   {Execution::kFree, {1.02, 1.05}}};
  for (const auto& [execution, most] : promised) {
    double sum[2] = {0, 0};
    int settings[2] = {0, 0};
    for (int law = 0; law < 6; ++law) {
      for (const int lane : {8, 16, 64}) {
        for (const int64_t samples : {64, 128, 256, 512}) {
          const auto plan = make_plan(law_request(LengthLaw{law}, lane, samples, 7, execution)).value();
          const bool few = samples < 8 * lane;
          sum[few] += plan.summary.makespan_us / plan.summary.lower_bound_us;
          ++settings[few];
        }
      }
    }
    EXPECT_LE(sum[0] / settings[0], most.first) << to_string(execution);
    EXPECT_LE(sum[1] / settings[1], most.second) << to_string(execution);
  }
}

TEST(Mixed, is_near_the_best_plan_of_tiny_instances) {
  for (const Execution execution : {Execution::kLockstep, Execution::kFree}) {
    double gaps = 0;
    int cases = 0;
    for (const int64_t samples : {1, 4, 6, 8}) {
      for (uint64_t seed = 0; seed < 10; ++seed, ++cases) {
        const auto request = law_request(LengthLaw::kMultimodal, 4, samples, seed, execution);
        PackInput input;
        for (const SampleLength& sample : request.samples) input.lengths.push_back(sample.tokens);
        input.max_cp = 4;
        input.budget = request.budget;
        input.cost = &request.cost;
        const double best_us = exact_us(input, execution);
        const auto plan = make_plan(request).value();
        EXPECT_GE(plan.summary.makespan_us, best_us * (1 - 1e-9));
        EXPECT_LE(plan.summary.makespan_us, 1.15 * best_us);
        EXPECT_LE(plan.summary.lower_bound_us, best_us * (1 + 1e-9));
        gaps += plan.summary.makespan_us / best_us - 1;
      }
    }
    EXPECT_LT(gaps / cases, 0.01) << to_string(execution);
  }
}

TEST(Mixed, uses_sizes_above_the_largest_need) {
  // One giant on a wide lane: S = 4 would leave 12 ranks idle.
  const auto request = request_of(topology_of(16, 32768, 8192, CpPolicy::kMixed, Execution::kLockstep), {32768});
  const auto plan = make_plan(request).value();
  EXPECT_GT(plan.micro_steps.at(0).groups.at(0).cp_size.value(), 4);
  EXPECT_LT(plan.summary.makespan_us, 0.75 * plan.summary.static_makespan_us);
}

TEST(Mixed, keeps_to_the_sizes_that_the_heads_allow) {
  for (const Execution execution : {Execution::kLockstep, Execution::kFree}) {
    for (int lane = 4; lane <= 24; lane += 4) {
      for (const int limit : {4, 8, 16}) {
        auto topology = topology_of(lane, 32768, 8192, CpPolicy::kMixed, execution);
        topology.head_cp_limit = limit;
        const auto request = request_of(topology, {32768, 200, 9000, 31, 7, 4096, 15000});
        const auto plan = make_plan(request).value();
        EXPECT_THAT(plan_violations(request, plan), ::testing::IsEmpty()) << lane << " " << limit;
        int largest = 1;
        for (const MicroStep& step : plan.micro_steps) {
          for (const PlannedGroup& group : step.groups) largest = std::max(largest, group.cp_size.value());
        }
        EXPECT_LE(largest, limit) << lane;
      }
    }
  }
  // Wider without the limit: uses_sizes_above_the_largest_need.
  auto topology = topology_of(16, 32768, 8192, CpPolicy::kMixed, Execution::kLockstep);
  topology.head_cp_limit = 4;
  EXPECT_EQ(make_plan(request_of(topology, {32768})).value().micro_steps.at(0).groups.at(0).cp_size.value(), 4);
}

TEST(Mixed, is_near_the_best_plan_under_a_limit_of_the_heads) {
  for (const Execution execution : {Execution::kLockstep, Execution::kFree}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      auto topology = topology_of(4, 16384, 8192, CpPolicy::kMixed, execution);
      topology.head_cp_limit = 2;
      auto lengths = draw_lengths(LengthLaw::kMultimodal, seed, 6);
      for (int64_t& length : lengths) length = std::min<int64_t>(length, 16384);
      const auto request = request_of(topology, lengths);
      const double best_us = exact_us(pack_input(request), execution);
      const double makespan_us = make_plan(request).value().summary.makespan_us;
      EXPECT_GE(makespan_us, best_us * (1 - 1e-9));
      EXPECT_LE(makespan_us, 1.15 * best_us);
    }
  }
}

TEST(Mixed, runs_groups_of_different_sizes_at_the_same_time) {
  const auto plan = make_plan(law_request(LengthLaw::kMultimodal, 8, 64, 3, Execution::kLockstep)).value();
  const bool any = std::any_of(plan.micro_steps.begin(), plan.micro_steps.end(), [](const MicroStep& step) {
    return step.groups.front().cp_size != step.groups.back().cp_size;
  });
  EXPECT_TRUE(any);
}

TEST(Mixed, free_execution_has_no_barriers) {
  const auto lockstep = make_plan(law_request(LengthLaw::kWikipedia, 16, 128, 3, Execution::kLockstep)).value();
  const auto free = make_plan(law_request(LengthLaw::kWikipedia, 16, 128, 3, Execution::kFree)).value();
  EXPECT_LE(free.summary.makespan_us, lockstep.summary.makespan_us);
}

TEST(Mixed, time_does_not_depend_on_the_order_of_samples) {
  for (const Execution execution : {Execution::kLockstep, Execution::kFree}) {
    auto request = law_request(LengthLaw::kRollouts, 16, 100, 5, execution);
    const double before = make_plan(request).value().summary.makespan_us;
    std::reverse(request.samples.begin(), request.samples.end());
    // The baselines look at the input order; everything else does not.
    request.passes.off = {"baselines"};
    EXPECT_NEAR(make_plan(request).value().summary.makespan_us, before, 1e-6 * before);
  }
}

TEST(Mixed, every_pass_may_be_switched_off_alone) {
  for (const Execution execution : {Execution::kLockstep, Execution::kFree}) {
    for (const std::string& pass : pass_names()) {
      auto request = law_request(LengthLaw::kProLong, 8, 40, 2, execution);
      request.passes.off = {pass};
      std::vector<std::string> ran;
      request.passes.after = [&](std::string_view name, double best_us) {
        ran.emplace_back(name);
        EXPECT_TRUE(name == "baselines" || best_us >= 0);
      };
      const auto plan = make_plan(request);
      EXPECT_THAT(plan_violations(request, plan.value()), ::testing::IsEmpty()) << pass;
      EXPECT_THAT(ran, ::testing::Not(::testing::Contains(pass)));
    }
  }
}

TEST(Mixed, passes_only_lower_the_time) {
  for (const Execution execution : {Execution::kLockstep, Execution::kFree}) {
    auto request = law_request(LengthLaw::kMoon, 16, 60, 2, execution);
    std::vector<double> best;
    request.passes.after = [&](std::string_view, double best_us) { best.push_back(best_us); };
    const auto plan = make_plan(request).value();
    EXPECT_TRUE(std::is_sorted(best.rbegin(), best.rend()));
    EXPECT_NEAR(best.back(), plan.summary.makespan_us, 1e-6 * best.back());
  }
}

TEST(Mixed, refuses_to_plan_without_any_pass_that_plans) {
  auto request = law_request(LengthLaw::kMegatron, 4, 10, 2, Execution::kFree);
  request.passes.off = {"nested", "shelves", "baselines"};
  try {
    make_plan(request);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("[plan] every pass that makes a plan is switched off"));
  }
}

TEST(Mixed, takes_every_lane_size) {
  for (int lane = 1; lane <= 24; ++lane) {
    for (const Execution execution : {Execution::kLockstep, Execution::kFree}) {
      const auto request =
          request_of(topology_of(lane, 1000, 1000, CpPolicy::kMixed, execution), {1000, 999, 3, 2, 1, 1, 500, 501});
      const auto plan = make_plan(request).value();
      EXPECT_THAT(plan_violations(request, plan), ::testing::IsEmpty()) << lane;
    }
  }
}

TEST(LengthLaws, are_seeded_and_within_their_limits) {
  for (const LengthLawInfo& info : length_laws()) {
    const auto lengths = draw_lengths(info.law, 1, 4000);
    EXPECT_EQ(lengths, draw_lengths(info.law, 1, 4000));
    EXPECT_NE(lengths, draw_lengths(info.law, 2, 4000));
    EXPECT_GE(*std::min_element(lengths.begin(), lengths.end()), 1);
    EXPECT_LE(*std::max_element(lengths.begin(), lengths.end()), info.longest_tokens);
    const auto packs = draw_tokens(info.law, 1, 100000);
    EXPECT_GE(std::accumulate(packs.begin(), packs.end(), int64_t{0}), 100000);
    EXPECT_LT(std::accumulate(packs.begin(), packs.end() - 1, int64_t{0}), 100000);
  }
}

TEST(LengthLaws, have_the_published_means) {
  const std::map<LengthLaw, std::pair<double, double>> means = {{LengthLaw::kMultimodal, {4000, 4400}},
                                                                {LengthLaw::kWikipedia, {850, 1150}},
                                                                {LengthLaw::kProLong, {2850, 3250}},
                                                                {LengthLaw::kMoon, {11900, 12900}},
                                                                {LengthLaw::kMegatron, {850, 1000}}};
  for (const auto& [law, range] : means) {
    const auto lengths = draw_lengths(law, 11, 40000);
    const double mean = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) / 40000;
    EXPECT_GT(mean, range.first) << info_of(law).name;
    EXPECT_LT(mean, range.second) << info_of(law).name;
  }
}

}  // namespace
}  // namespace ringfold
