// Full disks, too little memory, and the user's wish to stop.
#include <gmock/gmock.h>

#include "faults/job.h"

namespace ringfold {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

std::function<void()> limit(decltype(RLIMIT_AS) what, rlim_t value) {
  return [what, value] {
    const rlimit both{value, value};
    setrlimit(what, &both);
  };
}

class Limits : public Job {
 protected:
  // Runs to its end: exit code 4 and one line, which is returned.
  std::string failure(Process& job) {
    EXPECT_EQ(job.wait(kHangSeconds), 4) << job.errors();
    EXPECT_FALSE(job.left_somebody());
    const Strings lines = lines_of(job.errors());
    EXPECT_EQ(lines.size(), 1U) << job.errors();
    return lines.empty() ? "" : lines[0];
  }
  void wait_for_lines(const std::string& name, size_t lines) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (lines_of(text_of(folder_ / "run" / name)).size() < lines && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  // The file fills up a disk: writing to it gives ENOSPC.
  void fill_disk_at(const std::string& name) const {
    std::filesystem::create_directories(folder_ / "run");
    std::filesystem::create_symlink("/dev/full", folder_ / "run" / name);
  }
};

TEST_F(Limits, metrics_that_cannot_be_written_end_the_run) {
  // Neither metrics nor timeline have room for the third record.
  Process job(folder_, "job", launched(train_flags({"--log-level", "error"})), {}, limit(RLIMIT_FSIZE, 1200));
  EXPECT_THAT(failure(job),
              MatchesRegex("ringfold: error: \\[report\\] .*/run/(metrics|timeline).jsonl: cannot write a record: "
                           "File too large. Hint: .*"));
}

TEST_F(Limits, evaluations_on_a_full_disk_end_the_run) {
  fill_disk_at("eval.jsonl");
  Process job(folder_, "job", launched(train_flags({"--eval-data", folder_ / "data.jsonl"})), {});
  EXPECT_THAT(failure(job),
              MatchesRegex("ringfold: error: \\[report\\] .*/run/eval.jsonl: cannot write a record: No space "
                           "left on device. Hint: .*"));
}

TEST_F(Limits, plans_on_a_full_disk_end_the_run) {
  fill_disk_at("plan_step_2.json");
  Process job(folder_, "job", launched(train_flags({"--dump-plans"})), {});
  EXPECT_THAT(
      failure(job),
      MatchesRegex("ringfold: error: \\[train\\] .*/run/plan_step_2.json: cannot write the plan: No space left on "
                   "device. Hint: .*"));
}

TEST_F(Limits, weights_that_cannot_be_written_end_the_run_and_leave_no_half_file) {
  Process job(folder_, "job", launched(train_flags({"--max-steps", "1", "--no-save", "--log-level", "error"})), {},
              limit(RLIMIT_FSIZE, 2200));
  EXPECT_THAT(failure(job),
              MatchesRegex("ringfold: error: \\[.*\\] .*/run/hf/model.safetensors: write: got File too large, "
                           "expected success. Hint: .*"));
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "run" / "hf")) {
    EXPECT_EQ(entry.path().filename().string().find("model"), std::string::npos) << entry.path();
  }
}

TEST_F(Limits, out_of_memory_names_rank_micro_step_and_remedy) {
  std::ofstream file(folder_ / "long.jsonl");
  for (const int length : {16000, 10}) {
    file << R"({"tokens": [1)";
    for (int t = 1; t < length; ++t) file << ", " << t % 61;
    file << "]}\n";
  }
  file.close();
  // Plain attention of 16000 tokens wants 4 GB for its scores alone.
  const Strings flags =
      train_flags({"--data", folder_ / "long.jsonl", "--attention-kernel", "reference", "--rollout-max-context-len",
                   "16384", "--max-tokens-per-gpu", "16384", "--log-level", "error"});
  Process job(folder_, "job", launched(flags), {}, limit(RLIMIT_AS, rlim_t{4} << 30));
  EXPECT_THAT(
      failure(job),
      MatchesRegex("ringfold: error: \\[train\\] out of memory: rank [0-3], step 1, micro-step 0, CP size 1, 16000 "
                   "tokens on this rank. Hint: a smaller --max-tokens-per-gpu, .*"));
}

TEST_F(Limits, out_of_memory_while_loading_ends_all_ranks) {
  Process job(folder_, "job", launched(train_flags()), {{"RINGFOLD_FAULT", "1:0:loading:oom"}});
  EXPECT_EQ(failure(job),
            "ringfold: error: (rank 1) [main] rank 1: out of memory. Hint: a smaller model or budget, or fewer ranks a "
            "machine");
}

TEST_F(Limits, a_rank_that_ends_without_a_word_is_named) {
  Process job(folder_, "job", launched(train_flags()), {{"RINGFOLD_FAULT", "3:2:backward:exit"}});
  EXPECT_EQ(job.wait(kHangSeconds), 5) << job.errors();
  EXPECT_THAT(job.errors(),
              MatchesRegex("ringfold: error: \\[launch\\] rank 3 \\(pid [0-9]+\\) ended first, with exit code 5 "
                           "and without a word; the other ranks were stopped. Hint: [^\n]+\n"));
}

class Stop : public Limits, public testing::WithParamInterface<int> {};

TEST_P(Stop, ends_after_a_whole_step_with_the_weights_written) {
  Process job(folder_, "job", launched(train_flags({"--max-steps", "1000"})),
              {{"RINGFOLD_FAULT", "*:2:forward:slow:0.3"}});
  wait_for_lines("metrics.jsonl", 1);
  job.signal(GetParam());
  EXPECT_EQ(job.wait(kHangSeconds), 128 + GetParam()) << job.errors();
  EXPECT_FALSE(job.left_somebody());
  EXPECT_THAT(job.errors(),
              HasSubstr(fmt::format("stopped by signal {} after a whole step; the weights were written", GetParam())));
  EXPECT_THAT(job.errors(), testing::Not(HasSubstr("error")));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / "hf" / "model.safetensors"));
  EXPECT_LT(lines_of(text_of(folder_ / "run" / "metrics.jsonl")).size(), 1000U);
}

INSTANTIATE_TEST_SUITE_P(Signals, Stop, testing::Values(SIGTERM, SIGINT),
                         [](const auto& at) { return at.param == SIGTERM ? "sigterm" : "sigint"; });

TEST_F(Limits, a_second_signal_ends_at_once) {
  // Step 2 would last for ever. The evaluation after step 1 comes when all ranks know that nobody asked to stop so far.
  Process job(folder_, "job", launched(train_flags({"--eval-data", folder_ / "data.jsonl", "--eval-interval", "1"})),
              {{"RINGFOLD_FAULT", "*:2:forward:hang"}});
  wait_for_lines("eval.jsonl", 2);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(job.seconds() + 2.5), -1);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(kHangSeconds), 130) << job.errors();
  EXPECT_FALSE(job.left_somebody());
  EXPECT_EQ(job.errors(), "");
}

TEST_F(Limits, a_signal_to_one_rank_stops_all_in_peace) {
  Process job(folder_, "job", launched(train_flags({"--max-steps", "1000"})),
              {{"RINGFOLD_FAULT", "2:3:backward:term"}});
  EXPECT_EQ(job.wait(kHangSeconds), 143) << job.errors();
  EXPECT_THAT(job.errors(), HasSubstr("stopped by signal 15 after a whole step"));
  EXPECT_EQ(lines_of(text_of(folder_ / "run" / "metrics.jsonl")).size(), 3U);
}

TEST_F(Limits, a_malformed_fault_is_refused) {
  Process job(folder_, "job", launched(train_flags()), {{"RINGFOLD_FAULT", "2:forward"}});
  EXPECT_EQ(job.wait(kHangSeconds), 2) << job.errors();
  EXPECT_THAT(job.errors(), HasSubstr("[fault] RINGFOLD_FAULT: got '2:forward', expected rank:step:stage:action"));
}

}  // namespace
}  // namespace ringfold
