// Runs tests/plan/cases/*.json: settings and lengths in; plan facts, a refusal or an infeasibility out.
// A fact that a case does not state is not checked. `"dynamic": true` stands for the three switches of dynamic CP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plan/plan_support.h"
#include "ringfold/plan/validator.h"

namespace ringfold {
namespace {

using Json = nlohmann::json;

struct Case {
  std::string name;
  Json body;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name << " " << c.body.dump();
}

std::vector<Case> load_cases() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(RINGFOLD_SOURCE_DIR "/tests/plan/cases")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Case> cases;
  for (const auto& file : files) {
    std::ifstream stream(file);
    for (const Json& body : Json::parse(stream)) {
      std::string name = file.stem().string() + "_" + body.at("name").get<std::string>();
      std::replace_if(
          name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
      cases.push_back({name, body});
    }
  }
  return cases;
}

CpPolicy policy_named(const std::string& name) {
  for (const CpPolicy policy : {CpPolicy::kStatic, CpPolicy::kUniform, CpPolicy::kMixed}) {
    if (to_string(policy) == name) return policy;
  }
  throw std::invalid_argument("no policy " + name);
}

CpCommType comm_named(const std::string& name) {
  for (const CpCommType comm : {CpCommType::kP2p, CpCommType::kAllGather, CpCommType::kA2a}) {
    if (to_string(comm) == name) return comm;
  }
  throw std::invalid_argument("no comm type " + name);
}

ParallelSettings settings_of(const Json& json) {
  ParallelSettings s;
  for (const auto& [key, value] : json.items()) {
    if (key == "world_size")
      s.world_size = value;
    else if (key == "tensor_model_parallel_size")
      s.tensor_model_parallel_size = value;
    else if (key == "pipeline_model_parallel_size")
      s.pipeline_model_parallel_size = value;
    else if (key == "context_parallel_size")
      s.context_parallel_size = value, s.context_parallel_size_given = true;
    else if (key == "dynamic")
      s.dynamic_context_parallel = s.use_dynamic_batch_size = s.calculate_per_token_loss = value;
    else if (key == "dynamic_context_parallel")
      s.dynamic_context_parallel = value;
    else if (key == "use_dynamic_batch_size")
      s.use_dynamic_batch_size = value;
    else if (key == "calculate_per_token_loss")
      s.calculate_per_token_loss = value;
    else if (key == "rollout_max_context_len")
      s.rollout_max_context_len = value;
    else if (key == "max_tokens_per_gpu")
      s.max_tokens_per_gpu = value;
    else if (key == "log_probs_max_tokens_per_gpu")
      s.log_probs_max_tokens_per_gpu = value;
    else if (key == "cp_policy")
      s.cp_policy = policy_named(value), s.cp_policy_given = true;
    else if (key == "execution")
      s.execution = value == "free" ? Execution::kFree : Execution::kLockstep, s.execution_given = true;
    else if (key == "static_balance")
      s.static_balance = value == "work" ? PackBalance::kWork : PackBalance::kTokens;
    else if (key == "cp_comm_type")
      s.cp_comm_type = comm_named(value);
    else if (key == "heads")
      s.heads = {value[0], value[1]};
    else
      throw std::invalid_argument("unknown key " + key);
  }
  return s;
}

// The facts of a plan in the words of the case files.
Json facts_of(const Plan& plan) {
  Json facts = {{"max_cp", plan.topology.max_cp}, {"dp", plan.topology.dp}, {"steps", plan.micro_steps.size()}};
  facts["policy"] = to_string(plan.topology.policy);
  facts["largest_load"] = testing::largest_load(plan);
  facts["cp_sizes"] = Json::array();
  facts["plan"] = Json::array();
  facts["loads"] = Json::array();
  facts["idle"] = Json::array();
  for (const MicroStep& step : plan.micro_steps) {
    Json sizes = Json::array(), groups = Json::array(), loads = Json::array(), idle = Json::array();
    for (const PlannedGroup& group : step.groups) {
      sizes.push_back(group.cp_size.value());
      loads.push_back(group.padded_tokens.front());
      Json ids = Json::array();
      for (const SampleId id : group.samples) ids.push_back(id.value());
      groups.push_back(ids);
    }
    for (const LaneRank rank : step.idle_ranks) idle.push_back(rank.value());
    facts["cp_sizes"].push_back(sizes);
    facts["plan"].push_back(groups);
    facts["loads"].push_back(loads);
    facts["idle"].push_back(idle);
  }
  return facts;
}

class PlanCase : public ::testing::TestWithParam<Case> {};

TEST_P(PlanCase, holds) {
  const Json& body = GetParam().body;
  if (body.contains("refused")) {
    try {
      derive_topology(settings_of(body.at("settings")));
      FAIL() << "accepted, expected a refusal";
    } catch (const UsageError& error) {
      const std::string text = error.what();
      EXPECT_TRUE(text.starts_with(body.at("refused").at(0).get<std::string>())) << text;
      for (const auto& part : body.at("refused")) EXPECT_THAT(text, ::testing::HasSubstr(part.get<std::string>()));
      EXPECT_THAT(text, ::testing::HasSubstr("Hint: "));
      EXPECT_EQ(text.find('\n'), std::string::npos) << "one line only";
    }
    return;
  }
  const Topology topology = derive_topology(settings_of(body.at("settings")));
  PlanRequest request = testing::request_of(topology, body.at("lengths").get<std::vector<int64_t>>());
  request.budget = body.value("log_probs", false) ? topology.log_probs_budget : topology.budget;
  const Result<Plan> plan = make_plan(request);
  if (body.contains("infeasible")) {
    ASSERT_FALSE(plan.ok());
    for (const auto& part : body.at("infeasible"))
      EXPECT_THAT(plan.reason(), ::testing::HasSubstr(part.get<std::string>()));
    return;
  }
  ASSERT_TRUE(plan.ok()) << plan.reason();
  EXPECT_THAT(plan_violations(request, plan.value()), ::testing::IsEmpty());
  const Json facts = facts_of(plan.value());
  for (const auto& [key, expected] : body.at("expect").items()) EXPECT_EQ(facts.at(key), expected) << key;
}

INSTANTIATE_TEST_SUITE_P(Files, PlanCase, ::testing::ValuesIn(load_cases()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace ringfold
