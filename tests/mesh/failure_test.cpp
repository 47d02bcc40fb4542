#include "ringfold/mesh/failure.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

namespace ringfold {
namespace {

using Status = Rendezvous::Status;

struct Reported {
  int code;
  std::string text;
};

Reported report(const std::exception& failure, const LaunchEnv& env, bool shared = false) {
  testing::internal::CaptureStderr();
  const int code = report_failure(failure, env, shared);
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

TEST(ReportFailure, leaves_a_shared_failure_to_rank_0) {
  LaunchEnv env;
  env.world_size = 2;
  EXPECT_EQ(report(UsageError("bad flag"), env, true).text, "ringfold: error: bad flag\n");
  env.rank = Rank(1);
  const Reported other = report(UsageError("bad flag"), env, true);
  EXPECT_EQ(other.code, 2);
  EXPECT_EQ(other.text, "");
  // One that only this rank met is no other's to tell.
  EXPECT_EQ(report(ToldHere(ExitCode::kUsage, "bad line"), env, true).text, "ringfold: error: bad line\n");
}

TEST(ReportFailure, is_silent_about_what_another_rank_reports) {
  const Reported reported = report(ReportedElsewhere(ExitCode::kUsage), LaunchEnv{});
  EXPECT_EQ(reported.code, 2);
  EXPECT_EQ(reported.text, "");
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

TEST(ReportFailure, of_the_ranks_that_gave_up_a_peer_one_speaks_at_once) {
  const LaunchEnv env = env_with_voice(true);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(report(PeerError("silent", /*echo=*/false), env).text, "ringfold: error: silent\n");
  EXPECT_EQ(report(PeerError("silent too", /*echo=*/false), env).text, "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(ReportFailure, out_of_memory_is_said_in_plain_words) {
  LaunchEnv env;
  env.rank = Rank(1);
  EXPECT_EQ(
      report(std::bad_alloc(), env).text,
      "ringfold: error: [main] rank 1: out of memory. Hint: a smaller model or budget, or fewer ranks a machine\n");
}

TEST(ReportFailure, another_ranks_lack_of_memory_is_not_this_ranks) {
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("CUDA out of memory. Tried to allocate 2 GiB")));
  EXPECT_FALSE(is_out_of_memory(PeerError("[mesh] rank 0: stopped, because rank 1 reported: [train] out of memory")));
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

TEST(AgreedFailure, nothing_is_thrown_without_failures) {
  throw_agreed_failure({}, Rank(0));
}

TEST(AgreedFailure, each_message_is_told_once_and_all_ranks_end_alike) {
  const std::vector<Status> failures = {{Rank(1), ExitCode::kUsage, "line 5 is broken"},
                                        {Rank(2), ExitCode::kUsage, "line 5 is broken"},
                                        {Rank(3), ExitCode::kFailure, "no such disk"}};
  const auto told_by = [&](int rank) -> std::string {
    try {
      throw_agreed_failure(failures, Rank(rank));
    } catch (const ReportedElsewhere& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kUsage);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kUsage);
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_EQ(told_by(0), "");
  EXPECT_EQ(told_by(1), "line 5 is broken");
  EXPECT_EQ(told_by(2), "");
  EXPECT_EQ(told_by(3), "no such disk");
}

}  // namespace
}  // namespace ringfold
