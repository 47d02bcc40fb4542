// Judges of `ringfold rl` that fail, and those that only look like it: one message, the right exit code, no rank left.
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "faults/job.h"
#include "runs/rl_job.h"

namespace ringfold {
namespace {

using ::testing::HasSubstr;

// Far above what a job takes when nothing hangs.
constexpr double kHangSeconds = 100;

class RlJudge : public RlJob {
 protected:
  Arguments judged_by(const std::string& judge, const Arguments& more = {}) const {
    const Arguments flags = {"--objective", "grpo",         "--num-rollout", "2",         "--rm-type",
                             "program",     "--rm-program", judge,           "--no-save", "--no-progress"};
    return Arguments{RINGFOLD_BINARY} + job("rl", kSmallRollout + flags + more);
  }
};

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

const std::string kGood = R"(while read -r line; do echo "{\"reward\": ${#line}}"; done)";
const std::string kOnRank1 = "if [ \"$RANK\" = 0 ]; then " + kGood + "; fi; ";

TEST_F(RlJudge, that_fails_ends_the_job_with_one_message) {
  struct Case {
    std::string judge, message;
    Arguments more = {};
  };
  const std::vector<Case> cases = {
      {"exit 3", "it ended with code 3 before it had answered. Hint: run it by hand on one line"},
      {kOnRank1 + "read -r line; exit 0", "it ended with code 0 before it had answered"},
      {kOnRank1 + "read -r line; kill -9 $$", "it ended by signal 9 before it had answered"},
      {"/no/such/judge", "'/no/such/judge': it ended with code 127 before it had answered"},
      {kOnRank1 + "read -r line; echo '{\"reward\": 0.5'; cat > /dev/null",
       "got '{\"reward\": 0.5', expected a line such as {\"reward\": 1}"},
      {R"(while read -r line; do echo '{"reward": NaN}'; done)",
       "got '{\"reward\": NaN}', expected a line such as {\"reward\": 1}"},
      {R"(while read -r line; do printf '{"reward": 1}\n{"reward": 0}\n'; done)",
       "' unasked, expected one line for each that it is given"},
      {kOnRank1 + "sleep 600", "no answer within 4 s", {"--comm-timeout-seconds", "5"}},
  };
  for (const Case& one : cases) {
    std::filesystem::remove_all(at("out"));
    Process process(folder_, "job", judged_by(one.judge, one.more), {});
    EXPECT_EQ(process.wait(kHangSeconds), 4) << one.judge << "\n" << process.errors();
    EXPECT_THAT(process.errors(), HasSubstr("ringfold: error: [rollout] --rm-program '"));
    EXPECT_THAT(process.errors(), HasSubstr(one.message));
    EXPECT_EQ(count(process.errors(), "ringfold: error:"), 1u) << process.errors();
    EXPECT_FALSE(process.left_somebody()) << one.judge;
    EXPECT_FALSE(std::filesystem::exists(at("out/hf"))) << one.judge;
  }
}

// Slower in all than the limit for a silent rank, while each answer, or each token, comes in time.
TEST_F(RlJudge, that_is_slow_is_waited_for_and_so_is_a_sampler) {
  const std::string slow = "if [ \"$RANK\" = 0 ]; then " + kGood + "; fi; " +
                           R"(while read -r line; do sleep 0.8; echo "{\"reward\": ${#line}}"; done)";
  Process process(folder_, "job", judged_by(slow, {"--num-rollout", "1", "--comm-timeout-seconds", "9"}), {});
  EXPECT_EQ(process.wait(kHangSeconds), 0) << process.errors();
  EXPECT_GT(records("out/rollouts.jsonl").at(0)["reward_ms"], 9000.0);

  std::filesystem::remove_all(at("out"));
  Process sampling(
      folder_, "job",
      judged_by(kGood, {"--num-rollout", "1", "--comm-timeout-seconds", "9", "--rollout-max-sequences", "4"}),
      {{"RINGFOLD_FAULT", "1:1:sampling:slow:1"}});
  EXPECT_EQ(sampling.wait(kHangSeconds), 0) << sampling.errors();
  EXPECT_GT(records("out/rollouts.jsonl").at(0)["generate_ms"], 9000.0);
}

TEST_F(RlJudge, that_does_not_leave_holds_nobody_up) {
  Process process(folder_, "job", judged_by("trap '' TERM; " + kGood + "; sleep 600"), {});
  EXPECT_EQ(process.wait(kHangSeconds), 0) << process.errors();
}

// Its children neither read its input nor obey SIGTERM. The group ends with the run, also with that of a rank without
// destructors.
TEST_F(RlJudge, that_leaves_children_behind_is_ended_with_them) {
  for (const std::string fault : {"", "1:2:sampling:kill"}) {
    std::filesystem::remove_all(at("out"));
    std::filesystem::remove(at("groups"));
    Process process(folder_, "job", judged_by("trap '' TERM; sleep 600 & echo $$ >> " + at("groups") + "; " + kGood),
                    {{"RINGFOLD_FAULT", fault}});
    EXPECT_EQ(process.wait(kHangSeconds), fault.empty() ? 0 : 128 + SIGKILL) << process.errors();
    const Strings groups = lines_of(read_file(at("groups")));
    EXPECT_EQ(groups.size(), 2u);
    for (const std::string& group : groups) {
      while (group_lives(std::stoi(group)) && process.seconds() < kHangSeconds) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      EXPECT_FALSE(group_lives(std::stoi(group))) << fault;
      kill(-std::stoi(group), SIGKILL);
    }
  }
}

// Ctrl-C goes to the whole group of the terminal; the judge is needed until the rollout ends.
TEST_F(RlJudge, outlives_the_signal_that_stops_the_run) {
  Process process(folder_, "job", judged_by(kGood, {"--num-rollout", "2000"}), {});
  while (records("out/rollouts.jsonl").size() < 2 && process.wait(0) < 0 && process.seconds() < kHangSeconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  process.signal_group(SIGINT);
  EXPECT_EQ(process.wait(kHangSeconds), 128 + SIGINT) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr("stopped by signal 2 after a whole rollout"));
  EXPECT_EQ(count(process.errors(), "ringfold: error:"), 0u) << process.errors();
  EXPECT_TRUE(std::filesystem::exists(at("out/hf/model.safetensors")));
}

}  // namespace
}  // namespace ringfold
