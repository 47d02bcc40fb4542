#include "ringfold/mesh/failure.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

struct Reported {
  int code;
  std::string text;
};

Reported report(const std::exception& failure, const LaunchEnv& env) {
  testing::internal::CaptureStderr();
  const int code = report_failure(failure, env);
  return {code, testing::internal::GetCapturedStderr()};
}

// The launcher's pipe, with or without the voice in it.
LaunchEnv env_with_voice(bool available) {
  int ends[2];
  if (pipe2(ends, O_NONBLOCK) != 0) throw std::runtime_error("pipe");
  if (available && write(ends[1], "v", 1) != 1) throw std::runtime_error("write");
  LaunchEnv env;
  env.world_size = 2;
  env.under_ringfold_launch = true;
  env.voice_fd = ends[0];
  return env;
}

TEST(ReportFailure, prints_one_line_and_returns_the_code) {
  const Reported usage = report(UsageError("[cli] --lr: got x, expected a number"), LaunchEnv{});
  EXPECT_EQ(usage.code, 2);
  EXPECT_EQ(usage.text, "ringfold: error: [cli] --lr: got x, expected a number\n");
  EXPECT_EQ(report(Error(ExitCode::kNoPlan, "no"), LaunchEnv{}).code, 3);
  EXPECT_EQ(report(PeerError("lost"), LaunchEnv{}).text, "ringfold: error: lost\n");
  EXPECT_EQ(report(RunError("two\nlines"), LaunchEnv{}).text, "ringfold: error: two lines\n");
}

TEST(ReportFailure, cuts_foreign_exceptions_to_their_first_line) {
  LaunchEnv env;
  env.rank = Rank(3);
  const Reported reported =
      report(std::runtime_error("[/src/a.cc:12] shapes differ\nException raised from ...\n#0"), env);
  EXPECT_EQ(reported.code, 4);
  EXPECT_EQ(reported.text, "ringfold: error: [main] rank 3: shapes differ\n");
}

TEST(ReportFailure, echoes_under_the_launcher_wait_and_one_of_them_speaks) {
  const LaunchEnv env = env_with_voice(true);
  const auto begin = std::chrono::steady_clock::now();
  testing::internal::CaptureStderr();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&] { EXPECT_EQ(report_failure(PeerError("lost"), env), 4); });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "ringfold: error: lost\n");
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(ReportFailure, a_cause_is_told_at_once_and_takes_the_voice) {
  const LaunchEnv env = env_with_voice(true);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(report(RunError("disk full"), env).text, "ringfold: error: disk full\n");
  EXPECT_EQ(report(RunError("also full"), env).text, "ringfold: error: also full\n");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  char voice = 0;
  EXPECT_EQ(read(env.voice_fd, &voice, 1), -1);
}

}  // namespace
}  // namespace ringfold
