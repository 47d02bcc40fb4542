// `ringfold rl` end to end: the real binary, real processes, a task that can be learned within seconds.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runs/rl_job.h"

namespace ringfold {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

using Rl = RlJob;

double mean_reward(const std::vector<json>& rollouts, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += rollouts[i]["reward_mean"].get<double>();
  return sum / static_cast<double>(end - begin);
}

TEST_F(Rl, the_policy_learns_from_the_rewards_of_its_own_responses) {
  const Outcome outcome = launch({"--objective",
                                  "grpo",
                                  "--num-rollout",
                                  "40",
                                  "--rollout-batch-size",
                                  "16",
                                  "--n-samples-per-prompt",
                                  "16",
                                  "--rollout-max-response-len",
                                  "2",
                                  "--rollout-stop-token-ids",
                                  "9",
                                  "--lr",
                                  "5e-3",
                                  "--entropy-coef",
                                  "0.003",
                                  "--global-batch-size",
                                  "128",
                                  "--seed",
                                  "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto rollouts = records("out/rollouts.jsonl");
  ASSERT_EQ(rollouts.size(), 40u);
  EXPECT_GT(mean_reward(rollouts, 30, 40), mean_reward(rollouts, 0, 10) + 0.2);
  const auto steps = records("out/metrics.jsonl");
  EXPECT_EQ(records("out/timeline.jsonl").size(), steps.size());
  ASSERT_EQ(steps.size(), 80u);
  for (size_t i = 0; i < steps.size(); ++i) {
    // The first step on a rollout is on policy; sampler, log-prob pass and train pass agree.
    if (i % 2 == 0) {
      EXPECT_LE(steps[i]["ratio_max_dev"], 1e-5) << i;
    }
    EXPECT_LE(steps[i]["train_rollout_logprob_abs_diff"], 1e-5) << i;
    EXPECT_EQ(steps[i]["samples"].size(), 128u);
  }
  EXPECT_EQ(rollouts[3]["first_step"], 7);
  EXPECT_EQ(rollouts[3]["last_step"], 8);
  EXPECT_EQ(rollouts[3]["responses"], 256);
  EXPECT_TRUE(std::filesystem::exists(at("out/hf/model.safetensors")));
}

TEST_F(Rl, groups_without_a_contrast_are_left_out_and_a_program_judges) {
  const Outcome outcome = launch(
      kSmallRollout +
      Arguments{
          "--objective", "rloo", "--num-rollout", "2", "--dynamic-sampling-filter", "--offload-train", "--use-kl-loss",
          "--kl-loss-coef", "0.1", "--rm-type", "program", "--rm-program",
          "python3 -u -c 'import sys, json\n"
          "for line in sys.stdin:\n"
          "  r = json.loads(line)\n"
          "  print(json.dumps({\"reward\": 0 if len(r[\"prompt_tokens\"]) % 2 else sum(r[\"response_tokens\"])}))'"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const json& rollout : records("out/rollouts.jsonl")) {
    EXPECT_GE(rollout["dropped_groups"], 1);
    EXPECT_LT(rollout["dropped_groups"], 8);
  }
  const auto steps = records("out/metrics.jsonl");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_LE(std::abs(steps[0]["kl_loss"].get<double>()), 1e-9);  // the reference is the start
  EXPECT_GT(steps[1]["kl_loss"], 0.0);
}

TEST_F(Rl, given_lengths_end_the_responses_and_steps_are_made_without_a_reward) {
  std::ofstream(at("lengths.txt")) << "1,9,4\n30 2\n";
  const Outcome outcome = launch({"--objective", "grpo", "--num-rollout", "2", "--rollout-batch-size", "3",
                                  "--n-samples-per-prompt", "2", "--rollout-max-response-len", "24",
                                  "--rollout-lengths-file", at("lengths.txt"), "--no-shuffle", "--offload-train"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto rollouts = records("out/rollouts.jsonl");
  const auto steps = records("out/metrics.jsonl");
  ASSERT_EQ(rollouts.size(), 2u);
  ASSERT_EQ(steps.size(), 2u);
  // 1 9 | 4 30 | 2 1, then 9 4 | 30 2 | 1 9; 30 is cut at 24.
  EXPECT_NEAR(rollouts[0]["response_length_mean"].get<double>(), (1 + 9 + 4 + 24 + 2 + 1) / 6.0, 1e-9);
  EXPECT_NEAR(rollouts[1]["response_length_mean"].get<double>(), (9 + 4 + 24 + 2 + 1 + 9) / 6.0, 1e-9);
  EXPECT_NEAR(rollouts[0]["truncated_ratio"].get<double>(), 1 / 6.0, 1e-9);
  EXPECT_EQ(steps[0]["loss_tokens"], 41);
  EXPECT_GT(rollouts[0]["tokens"], 41);
  for (const json& rollout : rollouts) {
    EXPECT_GT(rollout["train_tokens_per_s"], 0.0);
    EXPECT_GT(rollout["held_bytes_sampling"], 0.0);
  }
}

// Without --rollout-max-context-len the largest pack is the limit: of training, or of the log-prob passes.
TEST_F(Rl, responses_end_where_the_largest_pack_is_full) {
  const std::vector<std::pair<Arguments, double>> budgets = {
      {{"--max-tokens-per-gpu", "5"}, 10}, {{"--max-tokens-per-gpu", "16", "--log-probs-max-tokens-per-gpu", "6"}, 12}};
  std::ofstream(at("lengths.txt")) << "24\n";
  for (const auto& [budget, longest] : budgets) {
    layout_ =
        Arguments{"--use-dynamic-batch-size", "--calculate-per-token-loss", "--context-parallel-size", "2"} + budget;
    std::filesystem::remove_all(at("out"));
    const Outcome outcome = launch({"--objective", "grpo", "--num-rollout", "1", "--rollout-batch-size", "3",
                                    "--n-samples-per-prompt", "2", "--rollout-max-response-len", "24",
                                    "--rollout-lengths-file", at("lengths.txt"), "--no-shuffle", "--no-save"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto rollouts = records("out/rollouts.jsonl");
    ASSERT_EQ(rollouts.size(), 1u);
    EXPECT_NEAR(rollouts[0]["truncated_ratio"].get<double>(), 1, 1e-9);
    EXPECT_EQ(rollouts[0]["tokens"], 6 * longest);  // prompts of 3, 4 and 5 tokens, filled up
    EXPECT_NEAR(rollouts[0]["response_length_mean"].get<double>(), longest - 4, 1e-9);
  }
}

TEST_F(Rl, a_prompt_without_room_is_told_with_the_flag_that_binds) {
  const std::vector<std::pair<Arguments, std::string>> budgets = {
      {{"--max-tokens-per-gpu", "4"},
       "prompts.jsonl:5 (sample 4): too long: got 9 tokens, expected at most 8 (--max-tokens-per-gpu 4 x CP size 2)"},
      {{"--max-tokens-per-gpu", "4", "--log-probs-max-tokens-per-gpu", "3"},
       "prompts.jsonl:3 (sample 2): too long: got 7 tokens, expected at most 6 (--log-probs-max-tokens-per-gpu 3 x CP "
       "size 2)"},
      {{"--max-tokens-per-gpu", "8", "--rollout-max-context-len", "8"},
       "prompts.jsonl:5 (sample 4): too long: got 9 tokens, expected at most 8 (--rollout-max-context-len)"},
  };
  for (const auto& [budget, message] : budgets) {
    layout_ =
        Arguments{"--use-dynamic-batch-size", "--calculate-per-token-loss", "--context-parallel-size", "2"} + budget;
    const Outcome outcome = launch(kSmallRollout + Arguments{"--objective", "grpo", "--num-rollout", "1"});
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
  // A prompt without an answer may fill the limit by itself.
  write("prompts.jsonl", R"({"tokens": [1, 2, 3, 4, 5, 6], "response_length": 0})"
                         "\n");
  layout_ = {"--use-dynamic-batch-size", "--calculate-per-token-loss",
             "--context-parallel-size",  "2",
             "--max-tokens-per-gpu",     "3"};
  const Outcome outcome = launch(kSmallRollout + Arguments{"--objective", "grpo", "--num-rollout", "1"});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("prompts.jsonl:1 (sample 0): prompt leaves no room for a response: got 6 tokens, "
                                     "expected fewer than 6 (--max-tokens-per-gpu 3 x CP size 2)"));
}

TEST_F(Rl, out_of_memory_while_sampling_names_the_flags_of_sampling) {
  const Outcome outcome = launch(kSmallRollout + Arguments{"--objective", "grpo", "--num-rollout", "2"}, "out",
                                 {{"RINGFOLD_FAULT", "1:2:sampling:oom"}});
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("[rollout] out of memory while sampling: rank 1, rollout 2, 64 responses at a "
                                     "time. Hint: a smaller --rollout-max-sequences or --rollout-max-response-len"));
}

TEST_F(Rl, what_cannot_work_is_refused_before_the_start) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{}, "--num-rollout is missing"},
      {{"--num-rollout", "2"}, "rl makes advantages from rewards, and --objective sft has none"},
      {{"--num-rollout", "2", "--objective", "grpo"}, "--rollout-stop-token-ids is missing"},
      {{"--num-rollout", "2", "--objective", "grpo", "--rollout-stop-token-ids", "9", "--n-samples-per-prompt", "1"},
       "--n-samples-per-prompt: got 1, expected at least 2"},
      {{"--num-rollout", "2", "--objective", "grpo", "--rollout-stop-token-ids", "9", "--rm-type", "numeric"},
       "--rm-type numeric reads texts and needs --tokenizer"},
      {{"--num-rollout", "2", "--objective", "grpo", "--rollout-stop-token-ids", "9", "--rm-type", "program"},
       "--rm-type program needs --rm-program"},
      {{"--num-rollout", "2", "--objective", "grpo", "--rollout-stop-token-ids", "9", "--rm-program", "x"},
       "--rm-program 'x' has no use with --rm-type exact"},
      {{"--num-rollout", "2", "--objective", "grpo", "--rollout-stop-token-ids", "9", "--rollout-lengths-file",
        at("prompts.jsonl")},
       "--rollout-lengths-file: got it beside --rollout-stop-token-ids, expected one of the two"},
      {{"--num-rollout", "2", "--objective", "grpo", "--dynamic-sampling-filter", "--rollout-lengths-file",
        at("prompts.jsonl")},
       "--rollout-lengths-file: got it beside --dynamic-sampling-filter, expected one of the two"},
      {{"--num-rollout", "2", "--objective", "grpo", "--rollout-lengths-file", at("prompts.jsonl")},
       "prompts.jsonl:1 (sample 0): length: got"},
  };
  for (const auto& [flags, message] : cases) {
    const Outcome outcome = launch(flags);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_EQ(outcome.err.find("ringfold: error:"), outcome.err.rfind("ringfold: error:")) << outcome.err;
  }
}

}  // namespace
}  // namespace ringfold
