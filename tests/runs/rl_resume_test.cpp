// `ringfold rl` killed, stopped and resumed, against the run that nothing happened to.
#include <gmock/gmock.h>

#include <csignal>

#include "runs/rl_job.h"

namespace ringfold {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class RlResume : public RlJob {
 protected:
  // Six rollouts of two steps; a reference, a schedule that knows its step, rollouts that leave groups out.
  const Arguments flags_ = kSmallRollout + Arguments{"--objective",
                                                     "rloo",
                                                     "--num-rollout",
                                                     "6",
                                                     "--global-batch-size",
                                                     "16",
                                                     "--rm-type",
                                                     "program",
                                                     "--rm-program",
                                                     "while read -r line; do echo \"{\\\"reward\\\": ${#line}}\"; done",
                                                     "--use-kl-loss",
                                                     "--kl-loss-coef",
                                                     "0.1",
                                                     "--offload-train",
                                                     "--lr",
                                                     "3e-3",
                                                     "--lr-warmup-steps",
                                                     "3",
                                                     "--lr-decay-style",
                                                     "cosine",
                                                     "--weight-decay",
                                                     "0.1",
                                                     "--seed",
                                                     "5",
                                                     "--shuffle",
                                                     "--no-progress"};
  const Arguments every_two_ = {"--save-interval", "2"}, resume_ = {"--resume", "auto"};

  // Runs to the end; what it said.
  std::string finish(const std::string& out, const Arguments& more, int code = 0, const std::string& fault = "") const {
    const Outcome outcome = launch(flags_ + more, out, {{"RINGFOLD_FAULT", fault}});
    EXPECT_EQ(outcome.code, code) << outcome.err;
    return outcome.err;
  }

  // Without what was measured.
  std::vector<json> facts(const std::string& name) const {
    std::vector<json> all = records(name);
    for (json& record : all) {
      for (const char* measured :
           {"plan_ms", "step_ms", "exposed_comm_ms", "idle_share", "tokens_per_s", "tflops_per_gpu",
            "peak_memory_bytes", "held_bytes_training", "held_bytes_sampling", "generate_ms", "reward_ms",
            "log_probs_ms", "train_ms", "total_ms", "train_tokens_per_s", "end_to_end_tokens_per_s"}) {
        record.erase(measured);
      }
    }
    return all;
  }

  void expect_same_bits(const std::string& got, const std::string& unbroken) const {
    for (const std::string file : {"/hf/model.safetensors", "/checkpoints/step_6/hf/model.safetensors",
                                   "/checkpoints/step_6/optimizer.safetensors"}) {
      ASSERT_FALSE(read_file(at(unbroken + file)).empty()) << file;
      EXPECT_TRUE(read_file(at(got + file)) == read_file(at(unbroken + file))) << got << file;
    }
    for (const std::string file : {"/rollouts.jsonl", "/metrics.jsonl"}) {
      EXPECT_EQ(facts(got + file), facts(unbroken + file)) << got << file;
    }
    EXPECT_EQ(records(got + "/timeline.jsonl").size(), records(unbroken + "/timeline.jsonl").size());
  }
};

TEST_F(RlResume, changes_no_bit_after_a_kill_or_a_stop) {
  finish("unbroken", every_two_);
  ASSERT_EQ(records("unbroken/metrics.jsonl").size(), 12u);
  EXPECT_GT(records("unbroken/metrics.jsonl").back()["kl_loss"], 0.0);

  // In the fourth rollout: what the third one left behind the checkpoint is cut.
  EXPECT_NE(launch(flags_ + every_two_, "killed", {{"RINGFOLD_FAULT", "1:7:forward:kill"}}).code, 0);
  EXPECT_EQ(records("killed/rollouts.jsonl").size(), 3u);
  EXPECT_THAT(finish("killed", every_two_ + resume_),
              HasSubstr("ringfold: resumed after rollout 2 from " + at("killed/checkpoints/step_2")));
  expect_same_bits("killed", "unbroken");

  // A signal in the second rollout: saved after it, whatever the interval.
  EXPECT_THAT(finish("stopped", {}, 128 + SIGTERM, "1:3:planning:term"),
              HasSubstr("stopped by signal 15 after a whole rollout"));
  EXPECT_EQ(records("stopped/rollouts.jsonl").size(), 2u);
  EXPECT_TRUE(fs::exists(at("stopped/checkpoints/step_2/COMPLETE")));
  EXPECT_THAT(
      finish("stopped", {"--async-save", "--save-interval", "1", "--save-total-limit", "2", "--resume", "auto"}),
      HasSubstr("resumed after rollout 2"));
  expect_same_bits("stopped", "unbroken");
  EXPECT_EQ(std::distance(fs::directory_iterator(at("stopped/checkpoints")), {}), 2);

  // From a checkpoint of another run, which stays as it is; and a finished run has nothing left to do.
  finish("branch", every_two_ + Arguments{"--resume", at("unbroken/checkpoints/step_4")});
  EXPECT_TRUE(read_file(at("branch/hf/model.safetensors")) == read_file(at("unbroken/hf/model.safetensors")));
  EXPECT_EQ(records("branch/rollouts.jsonl").size(), 2u);
  finish("stopped", resume_);
  expect_same_bits("stopped", "unbroken");

  // Back within a run, on purpose.
  EXPECT_THAT(finish("unbroken", {"--resume", at("unbroken/checkpoints/step_2")}),
              HasSubstr("checkpoints of later steps (6, 4) were renamed"));
  expect_same_bits("unbroken", "stopped");
}

TEST_F(RlResume, refuses_another_run) {
  const Arguments brief = {"--num-rollout", "1"};
  finish("out", brief);
  EXPECT_THAT(finish("out", {}, 2), HasSubstr("holds a run already. Hint: --resume auto goes on with it"));
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"--seed", "6"}, "step_1: --seed: got 6, expected 5 as in the checkpoint"},
      {{"--rollout-batch-size", "4"}, "step_1: --rollout-batch-size: got 4, expected 8"},
      {{"--init-seed", "4"}, "step_1: reference weights: got digest "},
  };
  for (const auto& [more, message] : cases) {
    const std::string refusal = finish("out", resume_ + more, 2);
    EXPECT_THAT(refusal, HasSubstr(message));
    EXPECT_EQ(refusal.find("ringfold: error:"), refusal.rfind("ringfold: error:")) << refusal;
  }
  // Steps of `train` are no rollouts.
  const Outcome trained = run_binary(job("train", {"--max-steps", "1", "--seed", "5", "--shuffle"}, "trained"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome refused = run_binary(job("train", resume_ + Arguments{"--seed", "5", "--shuffle"}, "out"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("step_1: responses: got of the data, expected sampled by the run"));
  EXPECT_THAT(finish("trained", resume_, 2), HasSubstr("responses: got sampled by the run, expected of the data"));
  EXPECT_EQ(records("out/rollouts.jsonl").size(), 1u);
}

}  // namespace
}  // namespace ringfold
