// Every kind of fault at every stage of a step, under `ringfold launch`: one line that says what happened and where,
// the exit code, the time it took, and nobody left behind.
#include <gmock/gmock.h>

#include <string_view>

#include "faults/job.h"

namespace ringfold {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

constexpr double kTimeout = 3;
constexpr double kSlack = 4;

struct Case {
  std::string stage, action;
  std::string name() const { return stage + "_" + action; }
};

class LaunchedFault : public Job, public testing::WithParamInterface<Case> {};

int step_of(const std::string& stage) {
  return stage == "loading" ? 0 : 2;
}

// Operations in which the others may wait for a rank that is lost in this stage.
std::string place_of(const std::string& stage) {
  if (stage == "loading") return "loading";
  if (stage == "forward" || stage == "backward") return "\\(micro-step 0, step 2\\)";
  return "\\(step 2\\)";
}

TEST_P(LaunchedFault, gives_one_line_and_the_exit_code) {
  const auto& [stage, action] = GetParam();
  const std::string at = fmt::format("2:{}:{}:", step_of(stage), stage);
  // The rank stays a moment in the stage, as it would with a model of a real size: its beat is up to date.
  Process job(folder_, "job", launched(train_flags(timeout(kTimeout))),
              {{"RINGFOLD_FAULT", fmt::format("{0}slow:0.7,{0}{1}", at, action)}});
  const int code = job.wait(kHangSeconds);
  ASSERT_NE(code, -1) << "hung; so far: " << job.errors();
  EXPECT_FALSE(job.left_somebody());
  EXPECT_LT(waited_seconds(job.errors()), (action == "stop" || action == "hang" ? kTimeout : 0) + kSlack)
      << job.errors();
  const Strings lines = lines_of(job.errors());
  ASSERT_EQ(lines.size(), 1U) << job.errors();
  if (action == "kill") {
    EXPECT_EQ(code, 137);
    EXPECT_THAT(
        lines[0],
        MatchesRegex("ringfold: error: \\[launch\\] rank 2 \\(pid [0-9]+\\) was killed by signal 9 \\(SIGKILL\\), "
                     "last seen in " +
                     stage + ".*; the other ranks were stopped\\. Hint: .*"));
    if (stage != "loading") {
      EXPECT_THAT(lines[0], MatchesRegex(".*" + stage + " " + place_of(stage) + ".*"));
    }
    return;
  }
  EXPECT_EQ(code, 4) << lines[0];
  if (action == "fail") {
    EXPECT_EQ(lines[0], fmt::format("ringfold: error: {}[fault] rank 2: failed on purpose in {} (step {})",
                                    stage == "loading" ? "(rank 2) " : "", stage, step_of(stage)));
  } else if (action == "cut") {
    EXPECT_THAT(lines[0],
                MatchesRegex("ringfold: error: \\[mesh\\] rank . .*lost the connection to rank .*step 2\\).*the "
                             "network between the two cut the connection\\."));
    EXPECT_THAT(lines[0], HasSubstr("rank 2"));
  } else if (stage == "loading") {
    EXPECT_THAT(lines[0], MatchesRegex("ringfold: error: \\[mesh\\] rank [013]: start: got no word from rank\\(s\\) 2, "
                                       "expected all 4 ranks within 3 s; rank 2 .*in loading.* Hint: .*"));
  } else {
    const std::string what =
        action == "stop" ? "rank 2 was last heard of [0-9.]+ s ago, in " : "rank 2 is alive and has been in ";
    EXPECT_THAT(lines[0],
                MatchesRegex("ringfold: error: \\[mesh\\] rank [013] .*no answer from rank .*expected an answer "
                             "within 3 s;.*" +
                             what + stage + " " + place_of(stage) + ".* Hint: rank 2 is .*"));
  }
}

TEST_F(Job, one_ranks_lack_of_memory_is_told_by_that_rank_alone) {
  // Step 1 begins with a pack of four ranks: the others are inside its exchanges.
  Process job(folder_, "job", launched(train_flags(timeout(20))), {{"RINGFOLD_FAULT", "1:1:backward:oom"}});
  EXPECT_EQ(job.wait(kHangSeconds), 4);
  const Strings lines = lines_of(job.errors());
  ASSERT_EQ(lines.size(), 1U) << job.errors();
  EXPECT_THAT(lines[0], MatchesRegex("ringfold: error: \\[train\\] out of memory: rank 1, step 1, micro-step 0, .*"));
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const char* stage : {"loading", "forward", "backward", "reduction", "logging"}) {
    for (const char* action : {"kill", "stop", "cut", "fail", "hang"}) {
      const std::string_view at = stage, what = action;
      // Nothing is connected yet while loading.
      if (at == "loading" && what == "cut") continue;
      if (what == "hang" && (at == "backward" || at == "logging")) continue;  // as in the forward
      cases.push_back({stage, action});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Stages, LaunchedFault, testing::ValuesIn(all_cases()),
                         [](const auto& at) { return at.param.name(); });

}  // namespace
}  // namespace ringfold
