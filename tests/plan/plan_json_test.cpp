// A plan read back from its JSON: equal to what was written, and whatever is wrong is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/plan_support.h"
#include "ringfold/base/error.h"
#include "ringfold/plan/length_laws.h"

namespace ringfold {
namespace {

using nlohmann::json;
using testing::dynamic_request;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Plan example(CpPolicy policy = CpPolicy::kMixed) {
  auto request = dynamic_request(8, 32768, 8192, draw_lengths(LengthLaw::kMultimodal, 3, 40));
  request.topology.policy = policy;
  return make_plan(request).value();
}

TEST(PlanJson, reads_back_to_the_same_text) {
  for (const CpPolicy policy : {CpPolicy::kStatic, CpPolicy::kUniform, CpPolicy::kMixed}) {
    const std::string text = plan_to_json(example(policy));
    EXPECT_EQ(plan_to_json(plan_from_json(text, "p.json")), text);
  }
  const std::string timed = plan_to_json(example(), 1.5);  // plan_ms is not part of the plan
  EXPECT_EQ(plan_to_json(plan_from_json(timed, "p.json")), plan_to_json(example()));
}

TEST(PlanJson, knows_the_length_of_a_sample_that_is_alone) {
  const Plan plan = plan_from_json(plan_to_json(make_plan(dynamic_request(4, 4096, 1024, {3999})).value()), "p.json");
  EXPECT_EQ(plan.micro_steps[0].groups[0].lengths, std::vector<int64_t>{3999});
}

std::string complaint(const std::string& text) {
  try {
    plan_from_json(text, "p.json");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(PlanJson, whatever_is_wrong_is_named) {
  const json good = json::parse(plan_to_json(make_plan(dynamic_request(4, 4096, 1024, {3999, 5, 5, 900})).value()));
  const auto with = [&](const char* pointer, const json& value) {
    json bad = good;
    bad[json::json_pointer(pointer)] = value;
    return complaint(bad.dump());
  };
  EXPECT_EQ(complaint(good.dump()), "");
  EXPECT_THAT(complaint("{\"schema\":"), StartsWith("[plan] p.json: broken JSON, expected one object. Hint: "));
  EXPECT_THAT(complaint("[]"), StartsWith("[plan] p.json: broken JSON"));
  EXPECT_THAT(complaint(std::string(100000, '[')), StartsWith("[plan] p.json: nested more than 16 deep"));
  EXPECT_THAT(complaint("{}"), StartsWith("[plan] p.json: schema: is missing. Hint: plans are written by "));
  EXPECT_THAT(with("/schema", 2), HasSubstr("schema: got another version of the plan JSON, expected 1"));
  EXPECT_THAT(with("/policy", "best"), HasSubstr("policy: got \"best\", expected static or uniform or mixed"));
  EXPECT_THAT(with("/mode", 1), HasSubstr("mode: got 1, expected lockstep or free"));
  EXPECT_THAT(with("/world_size", 5), HasSubstr("world_size: got 5, expected tp x pp x dp x max_cp"));
  EXPECT_THAT(with("/tp", 1 << 20), HasSubstr("world_size: got 4"));
  EXPECT_THAT(with("/dp", 0), HasSubstr("dp: got 0, expected an integer from 1 to 1048576"));
  EXPECT_THAT(with("/budget", 1e300), HasSubstr("budget: got 1e+300, expected an integer"));
  EXPECT_THAT(with("/budget", std::numeric_limits<uint64_t>::max()), HasSubstr("budget: got 18446744073709551615"));
  EXPECT_THAT(with("/micro_steps", 3), HasSubstr("micro_steps: got something else, expected an array"));
  EXPECT_THAT(with("/micro_steps/0", 3), HasSubstr("groups: got no object around it"));
  EXPECT_THAT(with("/micro_steps/0/idle_ranks", json({9})), HasSubstr("idle_ranks: got 9, expected an integer from 0"));
  EXPECT_THAT(with("/micro_steps/0/groups/0/cp_size", 3), HasSubstr("cp_size: got 3, expected a power of two"));
  EXPECT_THAT(with("/micro_steps/0/groups/0/ranks", json({0, 1, 2, 3, 3})), HasSubstr("ranks: got "));
  EXPECT_THAT(with("/micro_steps/0/groups/0/samples", json::array()), HasSubstr("got a group without samples"));
  EXPECT_THAT(with("/micro_steps/0/groups/0/samples", json({0, 0})), HasSubstr("got sample 0 twice"));
  EXPECT_THAT(with("/micro_steps/0/groups/0/padded_tokens", json::array()), HasSubstr("padded_tokens: got 0 ranks"));
  EXPECT_THAT(with("/micro_steps/0/groups/0/cost", -1), HasSubstr("cost: got -1, expected a number from 0 to "));
  EXPECT_THAT(with("/summary", 1), HasSubstr("summary: got something else, expected an object"));
  EXPECT_THAT(with("/summary/cp_token_share/1", 7), HasSubstr("1: got 7, expected a number from 0 to 1"));
  json twice = good;
  twice["micro_steps"][0]["groups"].push_back(good["micro_steps"][0]["groups"][0]);
  twice["micro_steps"][0]["groups"].back()["samples"] = {77};
  EXPECT_THAT(complaint(twice.dump()), HasSubstr("ranks: got groups that overlap or are not by first rank"));
}

}  // namespace
}  // namespace ringfold
