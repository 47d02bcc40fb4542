// The plan as a value: shares, fingerprint, JSON and text.
#include "ringfold/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "plan/plan_support.h"

namespace ringfold {
namespace {

using testing::dynamic_request;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Plan planned(const PlanRequest& request) {
  auto result = make_plan(request);
  EXPECT_TRUE(result.ok());
  return std::move(result).value();
}

TEST(Zigzag, pads_to_twice_the_cp_size_except_at_one) {
  EXPECT_EQ(padded_length(7, CpSize{1}), 7);
  EXPECT_EQ(padded_length(7, CpSize{2}), 8);
  EXPECT_EQ(padded_length(8, CpSize{2}), 8);
  EXPECT_EQ(padded_length(2999, CpSize{4}), 3000);
  EXPECT_EQ(padded_length(1, CpSize{64}), 128);
}

TEST(Zigzag, rank_r_owns_chunks_r_and_its_mirror) {
  // 7 tokens at c = 2: chunks of 2; the last chunk (of rank 0) holds one real token.
  EXPECT_EQ(zigzag_real_tokens(7, CpSize{2}, 0), 3);
  EXPECT_EQ(zigzag_real_tokens(7, CpSize{2}, 1), 4);
  EXPECT_EQ(zigzag_real_tokens(2999, CpSize{4}, 0), 749);
  EXPECT_EQ(zigzag_real_tokens(2999, CpSize{4}, 3), 750);
  // One token lives on rank 0 alone.
  for (int r = 0; r < 8; ++r) EXPECT_EQ(zigzag_real_tokens(1, CpSize{8}, r), r == 0 ? 1 : 0);
}

TEST(Zigzag, ranks_together_own_every_token_once) {
  for (int c = 1; c <= 64; c *= 2) {
    for (const int64_t tokens : {1, 2, 3, 7, 63, 64, 65, 127, 128, 129, 131, 997}) {
      int64_t total = 0;
      for (int r = 0; r < c; ++r) {
        const int64_t own = zigzag_real_tokens(tokens, CpSize{c}, r);
        EXPECT_LE(own, padded_length(tokens, CpSize{c}) / c);
        total += own;
      }
      EXPECT_EQ(total, tokens) << "c=" << c;
    }
  }
}

TEST(PlanValue, finds_the_group_of_a_rank) {
  const Plan plan = planned(dynamic_request(4, 2048, 1024, {2000, 2000, 2000}));
  const MicroStep& with_filler = plan.micro_steps[0];
  ASSERT_NE(with_filler.group_of(LaneRank{1}), nullptr);
  EXPECT_EQ(with_filler.group_of(LaneRank{1})->first_rank, LaneRank{0});
  EXPECT_EQ(with_filler.group_of(LaneRank{2}), nullptr);
}

TEST(PlanValue, keeps_sample_ids_that_are_not_positions) {
  auto request = dynamic_request(4, 4096, 1024, {500, 500, 500});
  request.samples = {{SampleId{70}, 500}, {SampleId{9}, 500}, {SampleId{31}, 500}};
  const Plan plan = planned(request);
  std::vector<int64_t> ids;
  for (const auto& group : plan.micro_steps[0].groups) {
    for (const SampleId id : group.samples) ids.push_back(id.value());
  }
  EXPECT_THAT(ids, ::testing::UnorderedElementsAre(70, 9, 31));
}

TEST(PlanValue, summary_counts_tokens_squares_shares_and_padding) {
  const Plan plan = planned(dynamic_request(2, 8192, 4096, {400, 7900, 301}));
  EXPECT_EQ(plan.summary.tokens, 8601);
  EXPECT_EQ(plan.summary.sum_squared_tokens, 400 * 400 + 7900 * 7900 + 301 * 301);
  ASSERT_EQ(plan.summary.cp_token_share.size(), 2u);
  EXPECT_DOUBLE_EQ(plan.summary.cp_token_share[0], 701.0 / 8601);
  EXPECT_DOUBLE_EQ(plan.summary.cp_token_share[1], 7900.0 / 8601);
  EXPECT_DOUBLE_EQ(plan.summary.padding_waste, 0.0);
  EXPECT_DOUBLE_EQ(planned(dynamic_request(4, 4096, 1024, {500})).summary.padding_waste, 4.0 / 500);
}

TEST(PlanValue, lockstep_times_add_up) {
  const Plan plan = planned(dynamic_request(4, 4096, 1024, {900, 800, 700, 600, 4000, 2000, 1500}));
  double now = 0;
  int order = 0;
  for (const MicroStep& step : plan.micro_steps) {
    double slowest = 0;
    for (const PlannedGroup& group : step.groups) {
      EXPECT_DOUBLE_EQ(group.start_us, now);
      EXPECT_EQ(group.order, order++);
      slowest = std::max(slowest, group.cost_us);
    }
    now += slowest;
  }
  EXPECT_DOUBLE_EQ(plan.summary.makespan_us, now);
  EXPECT_LE(plan.summary.lower_bound_us, now);
  EXPECT_GT(plan.summary.lower_bound_us, 0);
}

TEST(PlanValue, the_static_plan_is_its_own_baseline) {
  auto settings = testing::dynamic_settings(4, 4096, 1024);
  settings.cp_policy = CpPolicy::kStatic;
  settings.cp_policy_given = true;
  const std::vector<int64_t> lengths{900, 800, 700, 600, 4000, 2000, 1500};
  const Plan fixed = planned(testing::request_of(derive_topology(settings), lengths));
  EXPECT_DOUBLE_EQ(fixed.summary.makespan_us, fixed.summary.static_makespan_us);
  EXPECT_DOUBLE_EQ(planned(dynamic_request(4, 4096, 1024, lengths)).summary.static_makespan_us,
                   fixed.summary.makespan_us);
}

TEST(PlanFingerprint, is_the_same_for_the_same_request) {
  const auto request = dynamic_request(8, 4096, 1024, {900, 800, 700, 600, 4000, 2000, 1500});
  EXPECT_EQ(plan_fingerprint(planned(request)), plan_fingerprint(planned(request)));
}

TEST(PlanFingerprint, changes_with_everything_ranks_act_on) {
  const Plan plan = planned(dynamic_request(8, 4096, 1024, {900, 800, 700, 600, 4000, 2000, 1500}));
  const uint64_t before = plan_fingerprint(plan);
  const auto changed = [&](auto change) {
    Plan copy = plan;
    change(copy);
    return plan_fingerprint(copy) != before;
  };
  EXPECT_TRUE(changed([](Plan& p) { p.budget = 1025; }));
  EXPECT_TRUE(changed([](Plan& p) { p.topology.max_cp = 8; }));
  EXPECT_TRUE(changed([](Plan& p) { p.topology.execution = Execution::kFree; }));
  EXPECT_TRUE(changed([](Plan& p) { p.micro_steps.pop_back(); }));
  EXPECT_TRUE(changed([](Plan& p) { p.micro_steps[0].groups[0].samples[0] = SampleId{99}; }));
  EXPECT_TRUE(changed([](Plan& p) { p.micro_steps[0].groups[0].lengths[0] += 1; }));
  EXPECT_TRUE(changed([](Plan& p) { p.micro_steps[0].groups[0].first_rank = LaneRank{4}; }));
  EXPECT_TRUE(changed([](Plan& p) { p.micro_steps[0].groups[0].order = 9; }));
  EXPECT_FALSE(changed([](Plan& p) { p.summary.makespan_us += 1; }));
}

TEST(PlanJson, has_the_documented_fields_and_no_others) {
  const Json json = Json::parse(plan_to_json(planned(dynamic_request(4, 2048, 1024, {2000, 2000, 2000}))));
  std::vector<std::string> keys, group_keys, summary_keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  for (const auto& [key, value] : json["micro_steps"][0]["groups"][0].items()) group_keys.push_back(key);
  for (const auto& [key, value] : json["summary"].items()) summary_keys.push_back(key);
  EXPECT_THAT(keys, ::testing::UnorderedElementsAre("schema", "policy", "mode", "world_size", "tp", "pp", "max_cp",
                                                    "dp", "budget", "micro_steps", "summary"));
  EXPECT_THAT(group_keys, ::testing::UnorderedElementsAre("cp_size", "ranks", "samples", "real_tokens", "padded_tokens",
                                                          "cost", "order", "start_us"));
  EXPECT_THAT(summary_keys, ::testing::UnorderedElementsAre("tokens", "padding_waste", "cp_token_share", "makespan",
                                                            "static_makespan", "lower_bound"));
}

TEST(PlanJson, says_what_the_plan_says) {
  const Plan plan = planned(dynamic_request(4, 2048, 1024, {2000, 1999, 2000}));
  const Json json = Json::parse(plan_to_json(plan));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["policy"], "uniform");
  EXPECT_EQ(json["mode"], "lockstep");
  EXPECT_EQ(json["world_size"], 4);
  EXPECT_EQ(json["max_cp"], 2);
  EXPECT_EQ(json["dp"], 2);
  EXPECT_EQ(json["budget"], 1024);
  ASSERT_EQ(json["micro_steps"].size(), 2u);
  EXPECT_EQ(json["micro_steps"][0]["idle_ranks"], Json({2, 3}));
  EXPECT_EQ(json["micro_steps"][1]["idle_ranks"], Json::array());
  const Json& group = json["micro_steps"][1]["groups"][1];
  EXPECT_EQ(group["cp_size"], 2);
  EXPECT_EQ(group["ranks"], Json({2, 3}));
  EXPECT_EQ(group["samples"].size(), 1u);
  EXPECT_EQ(group["padded_tokens"], Json({1000, 1000}));
  EXPECT_EQ(group["order"], 2);
  EXPECT_EQ(json["summary"]["tokens"], 5999);
  EXPECT_EQ(json["summary"]["cp_token_share"], Json({{"1", 0.0}, {"2", 1.0}}));
  EXPECT_NEAR(json["summary"]["makespan"].get<double>(), plan.summary.makespan_us, 1e-3);
  int64_t real = 0;
  for (const auto& step : json["micro_steps"]) {
    for (const auto& g : step["groups"]) {
      for (const auto& tokens : g["real_tokens"]) real += tokens.get<int64_t>();
    }
  }
  EXPECT_EQ(real, 5999);
}

TEST(PlanJson, plan_ms_appears_only_when_given) {
  const Plan plan = planned(dynamic_request(4, 4096, 1024, {500}));
  EXPECT_FALSE(Json::parse(plan_to_json(plan)).contains("plan_ms"));
  EXPECT_DOUBLE_EQ(Json::parse(plan_to_json(plan, 0.25))["plan_ms"].get<double>(), 0.25);
  EXPECT_TRUE(Json::parse(plan_to_json(plan, 0)).contains("plan_ms"));
}

TEST(PlanReference, shows_what_the_printers_print) {
  const Plan plan = planned(dynamic_request(4, 2048, 1024, {2000, 1999, 2000}));
  std::ifstream stream(RINGFOLD_SOURCE_DIR "/docs/reference/plan_json.md");
  const std::string page{std::istreambuf_iterator<char>(stream), {}};
  const size_t start = page.find("```json\n") + 8;
  const Json shown = Json::parse(page.substr(start, page.find("```", start) - start));
  EXPECT_EQ(shown, Json::parse(plan_to_json(plan)));
  EXPECT_THAT(page, HasSubstr("```text\n" + plan_to_text(plan)));
}

TEST(PlanJson, an_empty_plan_is_complete_json) {
  const Json json = Json::parse(plan_to_json(planned(dynamic_request(4, 4096, 1024, {}))));
  EXPECT_EQ(json["micro_steps"], Json::array());
  EXPECT_EQ(json["summary"]["tokens"], 0);
  EXPECT_EQ(json["summary"]["padding_waste"], 0.0);
  EXPECT_EQ(json["summary"]["makespan"], 0.0);
}

TEST(PlanText, shows_tokens_per_gpu_and_what_static_cp_costs) {
  const std::string text = plan_to_text(planned(dynamic_request(2, 2048, 1024, {1800, 200})));
  EXPECT_THAT(text, HasSubstr("2 samples, 2,000 tokens in 1 micro-step: policy uniform, lockstep"));
  EXPECT_THAT(text, HasSubstr("world 2 = tp 1 x pp 1 x dp 1 x cp 2; budget 1,024 tokens per GPU"));
  EXPECT_THAT(text, HasSubstr("ranks 0-1"));
  EXPECT_THAT(text, HasSubstr("1,000 tokens per GPU ( 98 %)"));
  EXPECT_THAT(text, HasSubstr("2 samples: 0 1"));
  EXPECT_THAT(text, HasSubstr("static CP = 2"));
  EXPECT_THAT(text, HasSubstr("lower bound"));
  EXPECT_THAT(text, Not(HasSubstr("idle")));
}

TEST(PlanText, shows_idle_ranks_and_shortens_long_lists) {
  EXPECT_THAT(plan_to_text(planned(dynamic_request(8, 2048, 1024, {700}))), HasSubstr("idle  ranks 2-7"));
  const std::string many = plan_to_text(planned(dynamic_request(1, 1024, 1024, std::vector<int64_t>(20, 10))));
  EXPECT_THAT(many, HasSubstr("20 samples: 0 1 2 3 4 5 6 7 8 9 10 11 ... (8 more)"));
}

TEST(PlanText, says_when_there_is_no_budget) {
  EXPECT_THAT(plan_to_text(planned(testing::request_of(derive_topology({}), {5}))),
              HasSubstr("no token budget: one sample a pack"));
}

}  // namespace
}  // namespace ringfold
