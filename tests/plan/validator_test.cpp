// The validator must catch every fault that is put into a valid plan.
#include "ringfold/plan/validator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "plan/plan_support.h"

namespace ringfold {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Fault {
  const char* name;
  const char* says;
  std::function<void(Plan&)> seed;
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

PlanRequest valid_request() {
  return testing::dynamic_request(8, 4096, 1024, {900, 800, 700, 600, 4000, 2000, 1500, 300, 200, 100, 3900});
}

PlannedGroup& group(Plan& plan, size_t step, size_t index) {
  return plan.micro_steps.at(step).groups.at(index);
}

class SeededFault : public ::testing::TestWithParam<Fault> {};

TEST_P(SeededFault, is_caught) {
  const PlanRequest request = valid_request();
  Plan plan = make_plan(request).value();
  ASSERT_THAT(plan_violations(request, plan), IsEmpty());
  GetParam().seed(plan);
  EXPECT_THAT(plan_violations(request, plan), Contains(HasSubstr(GetParam().says)));
}

void drop_first_sample(PlannedGroup& g) {
  g.samples.erase(g.samples.begin());
  g.lengths.erase(g.lengths.begin());
}

const Fault kFaults[] = {
    {"lost_sample", "is planned 0 times", [](Plan& p) { drop_first_sample(group(p, 0, 0)); }},
    {"doubled_sample", "is planned 2 times",
     [](Plan& p) {
       group(p, 1, 0).samples.push_back(group(p, 0, 0).samples[0]);
       group(p, 1, 0).lengths.push_back(group(p, 0, 0).lengths[0]);
     }},
    {"foreign_sample", "was not requested", [](Plan& p) { group(p, 0, 0).samples[0] = SampleId{777}; }},
    {"wrong_length", "planned as", [](Plan& p) { group(p, 0, 0).lengths[0] += 1; }},
    {"missing_length", "lengths for", [](Plan& p) { group(p, 0, 0).lengths.pop_back(); }},
    {"empty_group", "has no samples",
     [](Plan& p) {
       group(p, 0, 0).samples.clear();
       group(p, 0, 0).lengths.clear();
     }},
    {"empty_micro_step", "has no groups", [](Plan& p) { p.micro_steps.emplace_back(); }},
    {"size_of_three", "is not a power of two", [](Plan& p) { group(p, 0, 0).cp_size = CpSize{3}; }},
    {"misaligned_block", "is not a multiple of CP size", [](Plan& p) { group(p, 0, 1).first_rank = LaneRank{1}; }},
    {"outside_the_lane", "outside the lane", [](Plan& p) { group(p, 0, 0).first_rank = LaneRank{8}; }},
    {"negative_rank", "outside the lane", [](Plan& p) { group(p, 0, 0).first_rank = LaneRank{-4}; }},
    {"overlap", "is in two groups", [](Plan& p) { group(p, 0, 1).first_rank = group(p, 0, 0).first_rank; }},
    {"unlisted_idle_rank", "neither in a group nor idle", [](Plan& p) { p.micro_steps[0].groups.pop_back(); }},
    {"busy_rank_called_idle", "in a group and idle",
     [](Plan& p) { p.micro_steps[0].idle_ranks.push_back(LaneRank{0}); }},
    {"idle_rank_outside", "outside the lane", [](Plan& p) { p.micro_steps[0].idle_ranks.push_back(LaneRank{64}); }},
    {"mixed_sizes_in_uniform", "differs from the micro-step's", [](Plan& p) { group(p, 0, 1).cp_size = CpSize{1}; }},
    {"wrong_load", "padded tokens of the ranks are wrong", [](Plan& p) { group(p, 0, 0).padded_tokens[0] -= 1; }},
    {"wrong_shares", "real tokens of the ranks are wrong",
     [](Plan& p) {
       group(p, 0, 0).real_tokens[0] += 1;
       group(p, 0, 0).real_tokens[1] -= 1;
     }},
    {"wrong_order", "is not its position", [](Plan& p) { std::swap(group(p, 0, 0).order, group(p, 0, 1).order); }},
    {"swapped_groups", "not listed by first rank", [](Plan& p) { std::swap(group(p, 0, 0), group(p, 0, 1)); }},
    {"wrong_token_count", "summary counts", [](Plan& p) { p.summary.tokens += 1; }},
    {"wrong_makespan", "running the groups takes", [](Plan& p) { p.summary.makespan_us *= 1.01; }},
    {"wrong_start", "its ranks are free at", [](Plan& p) { group(p, 1, 0).start_us += 1; }},
    {"too_high_bound", "is below the bound", [](Plan& p) { p.summary.lower_bound_us = 2 * p.summary.makespan_us; }},
    {"other_budget", "budget is", [](Plan& p) { p.budget += 1; }},
    {"other_topology", "topology is not the request's", [](Plan& p) { p.topology.dp += 1; }},
};

INSTANTIATE_TEST_SUITE_P(Validator, SeededFault, ::testing::ValuesIn(kFaults),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(Validator, catches_a_broken_load_rule) {
  // Two samples on one rank that the budget of the request does not hold.
  PlanRequest request = testing::dynamic_request(1, 1000, 1000, {400, 500});
  Plan plan = make_plan(request).value();
  request.budget = plan.budget = 899;
  EXPECT_THAT(plan_violations(request, plan), Contains(HasSubstr("900 tokens per GPU exceed the budget of 899")));
  request.budget = plan.budget = 900;
  EXPECT_THAT(plan_violations(request, plan), IsEmpty());
}

TEST(Validator, excuses_the_padding_of_one_sample_only) {
  PlanRequest request = testing::dynamic_request(2, 10, 5, {9});
  const Plan plan = make_plan(request).value();
  EXPECT_EQ(plan.micro_steps[0].groups[0].padded_tokens[0], 6);
  EXPECT_THAT(plan_violations(request, plan), IsEmpty());
  Plan smaller = plan;
  request.budget = smaller.budget = 4;  // 9 real tokens on two ranks: more than padding
  EXPECT_THAT(plan_violations(request, smaller), Contains(HasSubstr("exceed the budget")));
}

TEST(Validator, catches_two_samples_without_a_budget) {
  PlanRequest request = testing::dynamic_request(1, 1000, 1000, {400, 500});
  Plan plan = make_plan(request).value();
  request.budget = plan.budget = 0;
  EXPECT_THAT(plan_violations(request, plan), Contains(HasSubstr("2 samples without a budget")));
}

TEST(Validator, catches_another_size_under_static) {
  auto settings = testing::dynamic_settings(4, 4096, 1024);
  settings.cp_policy = CpPolicy::kStatic;
  settings.cp_policy_given = true;
  const auto request = testing::request_of(derive_topology(settings), {500, 600});
  Plan plan = make_plan(request).value();
  group(plan, 0, 0).cp_size = CpSize{2};
  EXPECT_THAT(plan_violations(request, plan), Contains(HasSubstr("under static CP 4")));
}

TEST(Validator, catches_a_request_that_names_a_sample_twice) {
  auto request = testing::dynamic_request(1, 1000, 1000, {400, 500});
  const Plan plan = make_plan(request).value();
  request.samples[1].id = SampleId{0};
  EXPECT_THAT(plan_violations(request, plan), Contains(HasSubstr("is requested twice")));
}

// Random moves of a sample from one group to another, without the bookkeeping: never silent.
TEST(Validator, catches_random_moves) {
  std::mt19937 random(17);
  const PlanRequest request = valid_request();
  const Plan valid = make_plan(request).value();
  for (int trial = 0; trial < 200; ++trial) {
    Plan plan = valid;
    auto& from_step = plan.micro_steps[random() % plan.micro_steps.size()];
    auto& to_step = plan.micro_steps[random() % plan.micro_steps.size()];
    auto& from = from_step.groups[random() % from_step.groups.size()];
    auto& to = to_step.groups[random() % to_step.groups.size()];
    if (&from == &to) continue;
    to.samples.push_back(from.samples[0]);
    to.lengths.push_back(from.lengths[0]);
    drop_first_sample(from);
    EXPECT_FALSE(plan_violations(request, plan).empty());
  }
}

}  // namespace
}  // namespace ringfold
