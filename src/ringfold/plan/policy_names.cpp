#include "ringfold/plan/policy_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringfold {
namespace {

struct Policy {
  const char* about;
  CpPolicy policy;
  PackBalance balance;
};

// In the order of policy_choices().
constexpr Policy kPolicies[] = {{"static CP by tokens", CpPolicy::kStatic, PackBalance::kTokens},
                                {"static CP by work", CpPolicy::kStatic, PackBalance::kWork},
                                {"static CP as it arrives", CpPolicy::kStatic, PackBalance::kArrival},
                                {"uniform", CpPolicy::kUniform, PackBalance::kTokens},
                                {"mixed", CpPolicy::kMixed, PackBalance::kTokens}};

const Policy& policy_named(const std::string& name) {
  const auto& names = policy_choices();
  return kPolicies[std::find(names.begin(), names.end(), name) - names.begin()];
}

}  // namespace

const std::vector<std::string>& policy_choices() {
  static const std::vector<std::string> names = {"static", "static_work", "static_arrival", "uniform", "mixed"};
  return names;
}

std::string describe_policy(const std::string& name, Execution execution) {
  return fmt::format("{}, {}", policy_named(name).about, to_string(execution));
}

PlanRequest with_policy(PlanRequest request, const std::string& name, Execution execution) {
  const Policy& policy = policy_named(name);
  request.topology.policy = policy.policy;
  request.topology.static_balance = policy.balance;
  request.topology.execution = execution;
  return request;
}

const std::vector<std::string>& cost_model_choices() {
  static const std::vector<std::string> names = {"qwen3-4b", "qwen3-30b-a3b", "megatron-small"};
  return names;
}

CostModel cost_model_named(const std::string& name) {
  if (name == "qwen3-30b-a3b") return CostModel::qwen3_30b_a3b_h200();
  if (name == "megatron-small") return CostModel::megatron_small_h200();
  return CostModel::qwen3_4b_h200();
}

}  // namespace ringfold
