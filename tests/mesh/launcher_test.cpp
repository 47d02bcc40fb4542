// The launcher, with shell scripts as ranks.
#include "ringfold/mesh/launcher.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::MatchesRegex;
using Clock = std::chrono::steady_clock;

class Launcher : public testing::Test {
 protected:
  Launcher() : folder_(std::filesystem::temp_directory_path() / fmt::format("ringfold_launcher_{}", getpid())) {
    std::filesystem::create_directories(folder_);
    setenv("OUT", folder_.c_str(), 1);
  }
  ~Launcher() override {
    unsetenv("OUT");
    std::filesystem::remove_all(folder_);
  }

  int run(int ranks, const std::string& script) {
    testing::internal::CaptureStderr();
    const auto begin = Clock::now();
    const int code = launch_processes({ranks, "/bin/sh", {"sh", "-c", script}});
    elapsed_ = Clock::now() - begin;
    errors_ = testing::internal::GetCapturedStderr();
    return code;
  }

  std::string text_of(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }

  // Ranks leave their pids here.
  bool any_alive(int ranks) const {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string pid = text_of(fmt::format("pid{}", rank));
      if (!pid.empty() && kill(std::stoi(pid), 0) == 0) return true;
    }
    return false;
  }

  void wait_for_files(const std::string& prefix, int ranks) const {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    for (int rank = 0; rank < ranks; ++rank) {
      while (text_of(fmt::format("{}{}", prefix, rank)).empty() && Clock::now() < deadline) {
        std::this_thread::sleep_for(milliseconds(10));
      }
    }
  }

  std::filesystem::path folder_;
  Clock::duration elapsed_{};
  std::string errors_;
};

const std::string kPid = "echo $$ > $OUT/pid$RANK; ";
// Rank 1 goes on when rank 0 has set its trap.
const std::string kAwaitTrap = "if [ $RANK = 1 ]; then while [ ! -s $OUT/trap ]; do sleep 0.05; done; ";
// What a rank does that reports an error.
const std::string kSpeak = "dd bs=1 count=1 if=/proc/self/fd/$RINGFOLD_LAUNCH_VOICE >/dev/null 2>&1; ";
// Acts on SIGTERM at once; without exec the shell would hold it back.
const std::string kWaitLong = "exec sleep 60";

TEST_F(Launcher, gives_each_rank_the_contract) {
  unsetenv("OMP_NUM_THREADS");
  setenv("WORLD_SIZE", "77", 1);
  EXPECT_EQ(run(2,
                "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_USE_AGENT_STORE "
                "$RINGFOLD_LAUNCH > $OUT/env$RANK; echo $MASTER_PORT > $OUT/port$RANK; "
                "echo $OMP_NUM_THREADS > $OUT/omp$RANK"),
            0);
  unsetenv("WORLD_SIZE");
  EXPECT_EQ(text_of("env0"), "0 2 0 2 127.0.0.1 True 1\n");
  EXPECT_EQ(text_of("env1"), "1 2 1 2 127.0.0.1 True 1\n");
  EXPECT_EQ(text_of("port0"), text_of("port1"));
  EXPECT_GT(std::stoi(text_of("port0")), 0);
  EXPECT_GE(std::stoi(text_of("omp0")), 1);
  EXPECT_EQ(errors_, "");
}

TEST_F(Launcher, keeps_the_users_thread_count) {
  setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(run(1, "echo $OMP_NUM_THREADS > $OUT/omp"), 0);
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(text_of("omp"), "3\n");
}

TEST_F(Launcher, ranks_meet_signals_as_the_launcher_did) {
  // Ignored and blocked signals survive exec. Other tests in this process may have ignored SIGPIPE.
  std::signal(SIGPIPE, SIG_DFL);
  EXPECT_EQ(run(1, "grep -E 'SigIgn|SigBlk' /proc/self/status > $OUT/signals"), 0);
  // What this process inherited from its own starter is passed on as it is.
  std::string own;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigBlk") || line.starts_with("SigIgn")) own += line + "\n";
  }
  EXPECT_EQ(text_of("signals"), own);
}

TEST_F(Launcher, hosts_the_store_on_the_port_it_names) {
  if (access("/bin/bash", X_OK) != 0) GTEST_SKIP() << "needs bash";
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch_processes({1, "bash", {"bash", "-c", "exec 9<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT"}}), 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Launcher, a_failing_rank_ends_the_others_and_gives_its_code) {
  EXPECT_EQ(run(3, kPid + "if [ $RANK = 1 ]; then " + kSpeak + "echo 'ringfold: error: disk full' >&2; exit 4; fi; " +
                       kWaitLong),
            4);
  EXPECT_EQ(errors_, "ringfold: error: disk full\n");
  EXPECT_LT(elapsed_, std::chrono::seconds(4));
  EXPECT_FALSE(any_alive(3));
}

TEST_F(Launcher, names_the_rank_that_failed_without_a_word) {
  EXPECT_EQ(run(3, "if [ $RANK = 1 ]; then exit 4; fi; " + kWaitLong), 4);
  EXPECT_THAT(errors_,
              MatchesRegex("ringfold: error: \\[launch\\] rank 1 \\(pid [0-9]+\\) ended first, with exit code 4 "
                           "and without a word; the other ranks were stopped. Hint: [^\n]+\n"));
}

TEST_F(Launcher, adds_nothing_to_a_refusal) {
  EXPECT_EQ(run(2, "[ $RANK = 0 ] && echo 'ringfold: error: bad flag' >&2; exit 2"), 2);
  EXPECT_EQ(errors_, "ringfold: error: bad flag\n");
  EXPECT_LT(elapsed_, std::chrono::milliseconds(2500));  // below the wait of an echo
}

TEST_F(Launcher, a_killed_rank_is_reported_once_and_ends_the_others) {
  EXPECT_EQ(run(3, kPid + "if [ $RANK = 2 ]; then kill -9 $$; fi; " + kWaitLong), 137);
  EXPECT_THAT(errors_, MatchesRegex("ringfold: error: \\[launch\\] rank 2 \\(pid [0-9]+\\) was killed by signal 9 "
                                    "\\(SIGKILL\\); the other ranks were stopped. Hint: [^\n]+\n"));
  EXPECT_LT(elapsed_, std::chrono::seconds(3));
  EXPECT_FALSE(any_alive(3));
}

TEST_F(Launcher, a_signal_is_the_cause_even_when_an_echo_is_reaped_first) {
  EXPECT_EQ(run(2, "if [ $RANK = 1 ]; then sleep 0.5; kill -SEGV $$; fi; exit 4"), 139);
  EXPECT_THAT(errors_, HasSubstr("rank 1 (pid "));
  EXPECT_THAT(errors_, HasSubstr("was killed by signal 11 (SIGSEGV)"));
  EXPECT_EQ(errors_.find("rank 0"), std::string::npos);
}

TEST_F(Launcher, a_rank_that_ignores_sigterm_is_killed_after_five_seconds) {
  EXPECT_EQ(run(2, kPid + kAwaitTrap + "kill -9 $$; fi; trap '' TERM; echo set > $OUT/trap; exec sleep 60"), 137);
  EXPECT_GT(elapsed_, std::chrono::seconds(5));
  EXPECT_LT(elapsed_, std::chrono::seconds(8));
  EXPECT_FALSE(any_alive(2));
}

TEST_F(Launcher, a_stopped_rank_is_ended_too) {
  EXPECT_EQ(run(2, kPid + "if [ $RANK = 1 ]; then sleep 0.3; exit 4; fi; kill -STOP $$; sleep 60"), 4);
  EXPECT_LT(elapsed_, std::chrono::seconds(4));
  EXPECT_FALSE(any_alive(2));
}

TEST_F(Launcher, takes_the_voice_from_the_echoes_of_a_killed_rank) {
  // An echo that outlives SIGTERM finds the pipe empty.
  EXPECT_EQ(run(2, kAwaitTrap + "kill -9 $$; fi; trap '' TERM; echo set > $OUT/trap; sleep 1; "
                                "eval \"dd bs=1 count=1 <&$RINGFOLD_LAUNCH_VOICE\" > $OUT/voice 2>/dev/null; exit 4"),
            137);
  EXPECT_EQ(text_of("voice"), "");
}

TEST_F(Launcher, ranks_that_agreed_to_stop_finish_in_peace) {
  // Rank 0 is done with its stop; rank 1 needs longer than the window after a failure.
  EXPECT_EQ(run(2, "if [ $RANK = 1 ]; then sleep 1.5; echo saved > $OUT/saved; fi; exit 143"), 143);
  EXPECT_EQ(text_of("saved"), "saved\n");
  EXPECT_EQ(errors_, "");
}

TEST_F(Launcher, a_program_that_cannot_run_is_named_once) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch_processes({2, "/no/such/program", {"program"}}), 127);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ringfold: error: [launch] cannot run '/no/such/program'. Hint: give an existing, executable program.\n");
}

TEST_F(Launcher, refuses_no_ranks_and_no_command) {
  const auto refusal = [](const LaunchRequest& request) -> std::string {
    try {
      launch_processes(request);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal({0, "/bin/true", {"true"}}),
            "[launch] -n: got 0, expected 1 or more ranks. Hint: ringfold launch -n 4 -- train ...");
  EXPECT_THAT(refusal({1, "/bin/true", {}}), HasSubstr("[launch] command: got nothing, expected a subcommand."));
}

// The launcher as a process of its own, to be signalled.
pid_t fork_launcher(int ranks, const std::string& script) {
  const pid_t pid = fork();
  if (pid == 0) _exit(launch_processes({ranks, "/bin/sh", {"sh", "-c", script}}));
  return pid;
}

int code_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(Launcher, passes_signals_on_and_lets_the_ranks_finish_in_peace) {
  // Rank 1 takes two seconds for its "checkpoint": longer than the window after a failure.
  const pid_t launcher =
      fork_launcher(2, kPid +
                           "trap 'if [ $RANK = 1 ]; then sleep 2; fi; echo saved > $OUT/saved$RANK; exit 130' INT; "
                           "echo ready > $OUT/ready$RANK; while true; do sleep 0.05; done");
  wait_for_files("ready", 2);
  kill(launcher, SIGINT);
  EXPECT_EQ(code_of(launcher), 130);
  EXPECT_EQ(text_of("saved0"), "saved\n");
  EXPECT_EQ(text_of("saved1"), "saved\n");
  EXPECT_FALSE(any_alive(2));
}

TEST_F(Launcher, a_stop_that_fails_ends_the_ranks_that_are_stuck) {
  const pid_t launcher = fork_launcher(
      2, kPid +
             "if [ $RANK = 1 ]; then trap '' TERM; else trap 'exit 4' TERM; fi; echo ready > $OUT/ready$RANK; "
             "while true; do sleep 0.05; done");
  wait_for_files("ready", 2);
  kill(launcher, SIGTERM);
  EXPECT_EQ(code_of(launcher), 4);
  EXPECT_FALSE(any_alive(2));
}

TEST_F(Launcher, passes_sigterm_on) {
  const pid_t launcher = fork_launcher(2, kPid + kWaitLong);
  wait_for_files("pid", 2);
  kill(launcher, SIGTERM);
  EXPECT_EQ(code_of(launcher), 143);
  EXPECT_FALSE(any_alive(2));
}

TEST_F(Launcher, no_rank_outlives_the_launcher) {
  const pid_t launcher = fork_launcher(2, kPid + kWaitLong);
  wait_for_files("pid", 2);
  kill(launcher, SIGKILL);
  EXPECT_EQ(code_of(launcher), -SIGKILL);
  const auto deadline = Clock::now() + std::chrono::seconds(5);
  // Orphans may stay zombies where nobody reaps them; a zombie runs nothing.
  const auto runs = [&](int rank) {
    const std::string pid =
        text_of(fmt::format("pid{}", rank)).substr(0, text_of(fmt::format("pid{}", rank)).find('\n'));
    std::ifstream stat("/proc/" + pid + "/stat");
    std::string field, state;
    stat >> field >> field >> state;
    return stat && state != "Z" && state != "X";
  };
  while ((runs(0) || runs(1)) && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_FALSE(runs(0) || runs(1));
}

TEST_F(Launcher, a_job_that_hangs_after_it_has_told_a_failure_is_ended) {
  EXPECT_EQ(run(2, kPid + "if [ $RANK = 1 ]; then head -c 1 /proc/self/fd/$RINGFOLD_LAUNCH_VOICE >/dev/null; "
                          "echo told >&2; fi; exec sleep 1000"),
            4);
  EXPECT_EQ(errors_, "told\n");
  EXPECT_LT(elapsed_, std::chrono::seconds(60));
  EXPECT_FALSE(any_alive(2));
}

}  // namespace
}  // namespace ringfold
