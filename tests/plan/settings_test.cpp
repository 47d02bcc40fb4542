// What is derived and said; refusals are data, in cases/refusals.json.
#include "ringfold/plan/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan_support.h"

namespace ringfold {
namespace {

using ::testing::Contains;
using testing::dynamic_settings;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Settings, derives_the_guide_example) {
  const Topology t = derive_topology(dynamic_settings(8, 32768, 8192));
  EXPECT_EQ(t.max_cp, 4);
  EXPECT_EQ(t.dp, 2);
  EXPECT_EQ(t.lane_size(), 8);
  EXPECT_EQ(t.budget, 8192);
  EXPECT_EQ(t.log_probs_budget, 8192);
  EXPECT_EQ(t.max_context, 32768);
  EXPECT_TRUE(t.dynamic);
  EXPECT_EQ(t.policy, CpPolicy::kUniform);
  EXPECT_EQ(t.execution, Execution::kLockstep);
  EXPECT_THAT(t.warnings, IsEmpty());
  EXPECT_THAT(t.notes, Contains(HasSubstr("S = 4 = next_power_of_2(ceil(32768 / 8192))")));
  EXPECT_THAT(t.notes, Contains(HasSubstr("dp = 2 = world_size 8 / (tp 1 * pp 1 * cp 4)")));
  EXPECT_THAT(t.notes, Contains(HasSubstr("--log-probs-max-tokens-per-gpu 8192 (default")));
  EXPECT_THAT(t.notes, Not(Contains(HasSubstr("overridden"))));
}

TEST(Settings, rounds_the_largest_size_up) {
  EXPECT_EQ(derive_topology(dynamic_settings(8, 32769, 8192)).max_cp, 8);
  EXPECT_EQ(derive_topology(dynamic_settings(4, 3 * 1024, 1024)).max_cp, 4);
  EXPECT_EQ(derive_topology(dynamic_settings(64, 64, 1)).max_cp, 64);
}

TEST(Settings, says_that_the_given_cp_size_is_overridden) {
  auto settings = dynamic_settings(4, 4096, 1024);
  settings.context_parallel_size = 2;
  settings.context_parallel_size_given = true;
  const Topology t = derive_topology(settings);
  EXPECT_EQ(t.max_cp, 4);
  EXPECT_THAT(t.notes, Contains(HasSubstr("--context-parallel-size 2 is overridden by S = 4")));
}

TEST(Settings, warns_when_dynamic_cp_degenerates) {
  for (const int64_t budget : {4096, 8192}) {
    const Topology t = derive_topology(dynamic_settings(2, 4096, budget));
    EXPECT_EQ(t.max_cp, 1);
    EXPECT_EQ(t.dp, 2);
    EXPECT_THAT(t.warnings, Contains(HasSubstr("degenerates to c = 1")));
    EXPECT_THAT(t.warnings, Contains(HasSubstr("--max-tokens-per-gpu")));
  }
  EXPECT_THAT(derive_topology(dynamic_settings(2, 4096, 4095)).warnings, IsEmpty());
}

TEST(Settings, keeps_a_log_prob_budget_of_its_own) {
  auto settings = dynamic_settings(4, 4096, 1024);
  settings.log_probs_max_tokens_per_gpu = 2048;
  const Topology t = derive_topology(settings);
  EXPECT_EQ(t.log_probs_budget, 2048);
  EXPECT_THAT(t.notes, Not(Contains(HasSubstr("--log-probs-max-tokens-per-gpu"))));
}

TEST(Settings, a_smaller_log_prob_budget_is_fine_while_s_holds) {
  auto settings = dynamic_settings(4, 3000, 1000);
  settings.log_probs_max_tokens_per_gpu = 750;
  EXPECT_EQ(derive_topology(settings).log_probs_budget, 750);
}

TEST(Settings, static_cp_takes_the_given_size) {
  ParallelSettings settings;
  settings.world_size = 8;
  settings.context_parallel_size = 4;
  settings.context_parallel_size_given = true;
  const Topology t = derive_topology(settings);
  EXPECT_EQ(t.max_cp, 4);
  EXPECT_EQ(t.dp, 2);
  EXPECT_FALSE(t.dynamic);
  EXPECT_EQ(t.policy, CpPolicy::kStatic);
  EXPECT_EQ(t.budget, 0);
  EXPECT_THAT(t.warnings, IsEmpty());
}

TEST(Settings, static_policy_may_be_named_with_and_without_dynamic) {
  ParallelSettings plain;
  plain.cp_policy = CpPolicy::kStatic;
  plain.cp_policy_given = true;
  EXPECT_EQ(derive_topology(plain).policy, CpPolicy::kStatic);
  auto dynamic = dynamic_settings(4, 4096, 1024);
  dynamic.cp_policy = CpPolicy::kStatic;
  dynamic.cp_policy_given = true;
  EXPECT_EQ(derive_topology(dynamic).policy, CpPolicy::kStatic);
  EXPECT_EQ(derive_topology(dynamic).max_cp, 4);
}

TEST(Settings, accepts_tensor_and_pipeline_parallel) {
  auto settings = dynamic_settings(32, 4096, 1024);
  settings.tensor_model_parallel_size = 2;
  settings.pipeline_model_parallel_size = 2;
  const Topology t = derive_topology(settings);
  EXPECT_EQ(t.tp, 2);
  EXPECT_EQ(t.pp, 2);
  EXPECT_EQ(t.dp, 2);
}

TEST(Settings, all_gather_is_a_choice) {
  auto settings = dynamic_settings(4, 4096, 1024);
  settings.cp_comm_type = CpCommType::kAllGather;
  EXPECT_EQ(derive_topology(settings).cp_comm_type, CpCommType::kAllGather);
}

TEST(Settings, all_to_all_is_a_choice_where_the_heads_allow_it) {
  auto settings = dynamic_settings(8, 8000, 1000);
  settings.cp_comm_type = CpCommType::kA2a;
  EXPECT_EQ(derive_topology(settings).head_cp_limit, 0) << "no model, no limit";
  for (const HeadCounts heads : {HeadCounts{8, 8}, HeadCounts{8, 4}, HeadCounts{32, 1}, HeadCounts{24, 8}}) {
    settings.heads = heads;
    EXPECT_EQ(derive_topology(settings).max_cp, 8) << heads.query << " " << heads.kv;
  }
  settings.cp_comm_type = CpCommType::kP2p;
  settings.heads = {3, 3};
  EXPECT_EQ(derive_topology(settings).head_cp_limit, 0) << "the ring splits no heads";
}

TEST(Settings, heads_lower_the_cap_of_mixed) {
  auto settings = dynamic_settings(16, 4000, 1000);
  settings.cp_comm_type = CpCommType::kA2a;
  settings.cp_policy = CpPolicy::kMixed;
  settings.cp_policy_given = true;
  settings.heads = {24, 4};
  const Topology t = derive_topology(settings);
  EXPECT_EQ(t.max_cp, 4);
  EXPECT_EQ(t.largest_cp(), 8);
  EXPECT_THAT(t.notes, Contains("CP sizes up to 8 instead of 16: --cp-comm-type a2a splits the model's 24 query heads "
                                "and 4 KV heads"));
  settings.heads = {64, 4};
  EXPECT_EQ(derive_topology(settings).largest_cp(), 16);
  EXPECT_THAT(derive_topology(settings).notes, Not(Contains(HasSubstr("instead of"))));
  settings.heads = {24, 4};
  settings.cp_policy = CpPolicy::kUniform;
  EXPECT_EQ(derive_topology(settings).largest_cp(), 4);
  EXPECT_EQ(derive_topology(settings).widest_cp(), 8) << "what bench times";
}

TEST(Settings, names_its_choices) {
  EXPECT_EQ(to_string(CpPolicy::kStatic), "static");
  EXPECT_EQ(to_string(CpPolicy::kUniform), "uniform");
  EXPECT_EQ(to_string(CpPolicy::kMixed), "mixed");
  EXPECT_EQ(to_string(Execution::kLockstep), "lockstep");
  EXPECT_EQ(to_string(Execution::kFree), "free");
  EXPECT_EQ(to_string(CpCommType::kP2p), "p2p");
  EXPECT_EQ(to_string(CpCommType::kAllGather), "all_gather");
  EXPECT_EQ(to_string(CpCommType::kA2a), "a2a");
}

}  // namespace
}  // namespace ringfold
