// A whole job: launcher, environment, rendezvous, lane. The ranks run this same program with a filter.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "ringfold/mesh/failure.h"
#include "ringfold/mesh/launcher.h"

namespace ringfold {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

std::string mode() {
  const char* value = std::getenv("RANK_PROGRAM");
  return value == nullptr ? "" : value;
}

// What a subcommand does, in small.
void run_rank(const LaunchEnv& env) {
  CommOptions options;
  options.timeout = std::chrono::seconds(mode() == "stop" ? 2 : 60);
  Rendezvous rendezvous(env, options);
  Rendezvous::Status status{env.rank, ExitCode::kOk, ""};
  if (mode() == "bad_data") status = {env.rank, ExitCode::kUsage, "[data] a.jsonl:5: got broken JSON. Hint: fix it."};
  throw_agreed_failure(rendezvous.agree("start", status), env.rank);
  std::vector<Rank> lane;
  for (int rank = 0; rank < env.world_size; ++rank) lane.emplace_back(rank);
  LaneComms comms = rendezvous.connect_lane(lane, "lane");
  for (int step = 0; step < 20; ++step) {
    if (step == 10 && env.rank == Rank(1)) {
      if (mode() == "kill") raise(SIGKILL);
      if (mode() == "stop") raise(SIGSTOP);
      if (mode() == "disk_full") throw RunError("[checkpoint] rank 1: got a full disk. Hint: free some space.");
    }
    at::Tensor sum = at::full({3}, env.rank.value() + 1);
    comms.collectives->all_reduce_sum(sum, fmt::format("the gradient reduction of step {}", step));
    if (sum[0].item<int>() != env.world_size * (env.world_size + 1) / 2) throw RunError("wrong sum");
  }
}

TEST(RankProgram, runs_alone_and_as_a_rank_of_a_launched_job) {
  if (mode().empty()) return run_rank(LaunchEnv{});
  LaunchEnv env = read_launch_env();
  try {
    run_rank(env);
  } catch (const std::exception& failure) {
    _exit(report_failure(failure, env));
  }
  _exit(0);
}

struct Outcome {
  int code;
  std::string errors;
  std::chrono::duration<double> elapsed;
};

Outcome launch(int ranks, const std::string& rank_mode) {
  setenv("RANK_PROGRAM", rank_mode.c_str(), 1);
  testing::internal::CaptureStderr();
  const auto begin = std::chrono::steady_clock::now();
  // stdout of the ranks would mix with ours.
  const int code = launch_processes(
      {ranks,
       "/bin/sh",
       {"sh", "-c", fmt::format("exec /proc/{}/exe --gtest_filter=RankProgram.* >/dev/null", getpid())}});
  unsetenv("RANK_PROGRAM");
  return {code, testing::internal::GetCapturedStderr(), std::chrono::steady_clock::now() - begin};
}

TEST(LaunchedJob, ends_well) {
  const Outcome job = launch(3, "well");
  EXPECT_EQ(job.code, 0);
  EXPECT_EQ(job.errors, "");
}

TEST(LaunchedJob, an_error_that_all_ranks_share_is_printed_once) {
  const Outcome job = launch(3, "bad_data");
  EXPECT_EQ(job.code, 2);
  EXPECT_EQ(job.errors, "ringfold: error: [data] a.jsonl:5: got broken JSON. Hint: fix it.\n");
}

TEST(LaunchedJob, a_killed_rank_is_the_only_thing_told) {
  const Outcome job = launch(3, "kill");
  EXPECT_EQ(job.code, 137);
  EXPECT_THAT(job.errors,
              MatchesRegex("ringfold: error: \\[launch\\] rank 1 \\(pid [0-9]+\\) was killed by signal 9 "
                           "\\(SIGKILL\\), last seen in [^\n]+; the other ranks were stopped. Hint: [^\n]+\n"));
  EXPECT_LT(job.elapsed.count(), 5);
}

TEST(LaunchedJob, the_cause_of_a_failure_is_told_not_its_echoes) {
  const Outcome job = launch(3, "disk_full");
  EXPECT_EQ(job.code, 4);
  EXPECT_EQ(job.errors, "ringfold: error: [checkpoint] rank 1: got a full disk. Hint: free some space.\n");
}

TEST(LaunchedJob, a_stopped_rank_is_told_by_one_of_the_others) {
  const Outcome job = launch(3, "stop");
  EXPECT_EQ(job.code, 4);
  EXPECT_THAT(job.errors, MatchesRegex("ringfold: error: \\[mesh\\] rank [02] [^\n]+ in the gradient reduction of step "
                                       "10: [^\n]+rank 1 was last heard of [^\n]+\n"));
  EXPECT_LT(job.elapsed.count(), 8);
}

}  // namespace
}  // namespace ringfold
