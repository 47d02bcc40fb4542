// The watch of a device with made-up work in place of NCCL's. Where it finds a failure the process ends soon, so those
// cases run in processes of their own, under the launcher: what it prints and returns is the proof that one rank spoke,
// and took the voice.
#include "ringfold/mesh/device_watch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "ringfold/mesh/failure.h"
#include "ringfold/mesh/launcher.h"
#include "ringfold/mesh/process_end.h"
#include "ringfold/mesh/store.h"

namespace ringfold {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::MatchesRegex;
using Clock = std::chrono::steady_clock;
using Stream = DeviceWatch::Stream;

class FakeWork : public c10d::Work {
 public:
  std::atomic<bool> done{false};
  std::atomic<bool> driver_hangs{false};
  void fail(const std::string& text) {
    const std::lock_guard lock(error_mutex_);
    error_ = std::make_exception_ptr(std::runtime_error(text));
  }
  // Like NCCL's: failed work is complete.
  bool isCompleted() override {
    while (driver_hangs) std::this_thread::sleep_for(milliseconds(10));
    return done || exception() != nullptr;
  }
  std::exception_ptr exception() const override {
    const std::lock_guard lock(error_mutex_);
    return error_;
  }
  bool wait(milliseconds) override {
    if (const auto error = exception()) std::rethrow_exception(error);
    return true;
  }

 private:
  mutable std::mutex error_mutex_;
  std::exception_ptr error_;
};

using FakePtr = c10::intrusive_ptr<FakeWork>;

// Rank 0 with a watched device, and rank 1, of which there is only what it tells the store.
class TwoRanks {
 public:
  explicit TwoRanks(milliseconds timeout) {
    CommOptions options;
    options.timeout = timeout;
    const auto store = share_store(c10::make_intrusive<c10d::HashStore>());
    own_ = std::make_unique<Rendezvous>(store, Rank(0), 2, options);
    peer_ = std::make_unique<Rendezvous>(store, Rank(1), 2, options);
    own().enter("backward", 3, 0);
    peer().enter("forward", 3, 0);
    watch_ = std::make_unique<DeviceWatch>(LanePlace{LaneRank(0), {Rank(0), Rank(1)}, timeout, own_->monitor()},
                                           [aborts = aborts_] { ++*aborts; });
  }

  Monitor& own() { return *own_->monitor(); }
  Monitor& peer() { return *peer_->monitor(); }
  Rendezvous& peer_rendezvous() { return *peer_; }
  void silence_peer() { peer_.reset(); }
  DeviceWatch& watch() { return *watch_; }
  int aborts() const { return *aborts_; }

  FakePtr issue(Stream stream = Stream::kReduction) {
    auto work = c10::make_intrusive<FakeWork>();
    watch_->issue(stream, "gradients (step 3)", [&] { return work; });
    return work;
  }
  // What a rank does that goes on issuing. Throws the failure once it is there.
  [[noreturn]] void work_until_failure() {
    while (true) {
      watch_->check("gradients (step 3)");
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

 private:
  std::shared_ptr<std::atomic<int>> aborts_ = std::make_shared<std::atomic<int>>(0);
  std::unique_ptr<Rendezvous> own_, peer_;
  std::unique_ptr<DeviceWatch> watch_;
};

void expect(bool condition, const char* what) {
  if (!condition) throw RunError(fmt::format("[test] expected: {}", what));
}

[[noreturn]] void hang() {
  while (true) std::this_thread::sleep_for(seconds(1));
}

void fail_and_expect_abort(TwoRanks& ranks) {
  try {
    ranks.work_until_failure();
  } catch (const std::exception&) {
    for (int i = 0; i < 500 && ranks.aborts() == 0; ++i) std::this_thread::sleep_for(milliseconds(10));
    expect(ranks.aborts() == 1, "one abort");
    expect(ranks.watch().has_failed(), "a failure");
    throw;
  }
}

void never_done_and_peer_silent() {
  TwoRanks ranks(seconds(1));
  const FakePtr work = ranks.issue();
  ranks.silence_peer();
  fail_and_expect_abort(ranks);
}

void never_done_and_peer_alive() {
  TwoRanks ranks(seconds(1));
  const FakePtr work = ranks.issue();
  fail_and_expect_abort(ranks);
}

void never_done_and_peer_waits_too() {
  TwoRanks ranks(seconds(1));
  const FakePtr work = ranks.issue();
  ranks.peer().device_waits({Rank(0)}, "weights (step 3)");
  fail_and_expect_abort(ranks);
}

void work_failed_by_peer() {
  TwoRanks ranks(seconds(20));
  ranks.silence_peer();
  ranks.issue()->fail(
      "NCCL error in: /src/NCCLUtils.cpp:94, remote process exited or there was a network error, NCCL version 2.28.9\n"
      "ncclRemoteError: A call failed possibly due to a network error\nLast error:\nConnection closed by 10.0.0.7");
  fail_and_expect_abort(ranks);
}

void work_failed_here() {
  TwoRanks ranks(seconds(20));
  ranks.issue()->fail(
      "NCCL error in: /src/NCCLUtils.cpp:94, unhandled system error, NCCL version 2.28.9\nncclSystemError: ...\n"
      "Last error:\nError while creating shared memory segment: No space left on device (28)\n"
      "Exception raised from abort at ...");
  fail_and_expect_abort(ranks);
}

void wait_throws() {
  TwoRanks ranks(seconds(20));
  const FakePtr work = ranks.issue(Stream::kExchange);
  work->fail("remote process exited");
  ranks.watch().wait(*work, "gradients (step 3)");
}

void issue_throws() {
  TwoRanks ranks(seconds(20));
  ranks.watch().issue(Stream::kExchange, "gradients (step 3)", []() -> DeviceWatch::WorkPtr {
    throw std::runtime_error("NCCL error in: /src/a.cpp:9, unhandled cuda error, NCCL version 2.28.9\nmore");
  });
}

// Only the abort frees a thread that waits inside NCCL for the connection to a peer.
void issue_hangs() {
  TwoRanks ranks(seconds(1));
  ranks.silence_peer();
  ranks.watch().issue(Stream::kExchange, "gradients (step 3)", [&]() -> DeviceWatch::WorkPtr {
    while (ranks.aborts() == 0) std::this_thread::sleep_for(milliseconds(10));
    throw std::runtime_error("NCCL communicator was aborted");
  });
}

void driver_hangs() {
  TwoRanks ranks(milliseconds(500));
  ranks.issue()->driver_hangs = true;
  hang();
}

void host_hangs_after_the_failure() {
  TwoRanks ranks(milliseconds(500));
  const FakePtr work = ranks.issue();
  ranks.silence_peer();
  hang();
}

void host_and_driver_hang_after_a_note() {
  TwoRanks ranks(seconds(1000));
  ranks.issue()->driver_hangs = true;
  std::this_thread::sleep_for(milliseconds(300));
  ranks.peer_rendezvous().tell_failure("[train] out of memory: rank 1, step 3");
  hang();
}

void another_rank_tells() {
  TwoRanks ranks(seconds(1000));
  const FakePtr work = ranks.issue();
  ranks.peer_rendezvous().tell_failure("[train] out of memory: rank 1, step 3");
  fail_and_expect_abort(ranks);
}

void stopped_for_longer_than_the_timeout() {
  TwoRanks ranks(seconds(3));
  const FakePtr work = ranks.issue();
  std::this_thread::sleep_for(milliseconds(500));
  const pid_t self = getpid();
  if (fork() == 0) {
    std::this_thread::sleep_for(seconds(5));
    kill(self, SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
  std::this_thread::sleep_for(seconds(1));
  expect(!ranks.watch().has_failed(), "no failure");
}

void closing_hangs() {
  const Deadline limit(milliseconds(300), [] { return std::make_exception_ptr(RunError("[test] it hangs")); });
  hang();
}

void the_end_hangs() {
  end_process_soon(0);
  hang();
}

const std::map<std::string, void (*)()> kScenarios = {
    {"never_done_and_peer_silent", never_done_and_peer_silent},
    {"never_done_and_peer_alive", never_done_and_peer_alive},
    {"never_done_and_peer_waits_too", never_done_and_peer_waits_too},
    {"work_failed_by_peer", work_failed_by_peer},
    {"work_failed_here", work_failed_here},
    {"wait_throws", wait_throws},
    {"issue_throws", issue_throws},
    {"issue_hangs", issue_hangs},
    {"driver_hangs", driver_hangs},
    {"host_hangs_after_the_failure", host_hangs_after_the_failure},
    {"host_and_driver_hang_after_a_note", host_and_driver_hang_after_a_note},
    {"another_rank_tells", another_rank_tells},
    {"stopped_for_longer_than_the_timeout", stopped_for_longer_than_the_timeout},
    {"closing_hangs", closing_hangs},
    {"the_end_hangs", the_end_hangs},
};

TEST(WatchedRank, runs_as_a_launched_process) {
  const char* name = std::getenv("WATCHED_RANK");
  if (name == nullptr) return;
  int code = 0;
  try {
    kScenarios.at(name)();
  } catch (const std::exception& failure) {
    code = report_failure(failure, read_launch_env());
  }
  end_process_now(code);
}

struct Outcome {
  int code;
  std::string errors;
};

Outcome launch(const std::string& scenario) {
  setenv("WATCHED_RANK", scenario.c_str(), 1);
  testing::internal::CaptureStderr();
  const int code = launch_processes(
      {1, "/bin/sh", {"sh", "-c", fmt::format("exec /proc/{}/exe --gtest_filter=WatchedRank.* >/dev/null", getpid())}});
  unsetenv("WATCHED_RANK");
  return {code, testing::internal::GetCapturedStderr()};
}

void expect_failure(const std::string& scenario, const std::string& line) {
  const Outcome outcome = launch(scenario);
  EXPECT_EQ(outcome.code, 4) << outcome.errors;
  EXPECT_THAT(outcome.errors, MatchesRegex("ringfold: error: " + line + "\n"));
}

const std::string kRank = "\\[mesh\\] rank 0 \\(lane rank 0\\): ";

TEST(DeviceWatch, work_that_ends_is_no_failure) {
  TwoRanks ranks(seconds(20));
  const FakePtr exchange = ranks.issue(Stream::kExchange), reduction = ranks.issue();
  exchange->done = reduction->done = true;
  std::this_thread::sleep_for(milliseconds(400));
  ranks.watch().check("the next");
  EXPECT_FALSE(ranks.watch().has_failed());
  EXPECT_EQ(ranks.aborts(), 0);
}

TEST(DeviceWatch, a_peer_that_gets_on_is_waited_for_beyond_the_timeout) {
  const seconds timeout(1);
  TwoRanks ranks(timeout);
  const FakePtr work = ranks.issue();
  const auto begin = Clock::now();
  for (int micro_step = 0; Clock::now() - begin < 4 * timeout; ++micro_step) {
    ranks.peer().enter("forward", 3, micro_step);
    std::this_thread::sleep_for(timeout / 4);
    ASSERT_FALSE(ranks.watch().has_failed());
  }
  work->done = true;
}

TEST(DeviceWatch, own_work_that_gets_on_lengthens_a_wait) {
  const seconds timeout(1);
  TwoRanks ranks(timeout);
  const FakePtr work = ranks.issue();
  const auto begin = Clock::now();
  while (Clock::now() - begin < 3 * timeout) {
    ranks.issue(Stream::kOwn)->done = true;
    std::this_thread::sleep_for(timeout / 4);
    ASSERT_FALSE(ranks.watch().has_failed());
  }
  work->done = true;
}

TEST(DeviceWatch, own_work_alone_may_take_any_time) {
  TwoRanks ranks(milliseconds(300));
  const FakePtr own = ranks.issue(Stream::kOwn);
  std::this_thread::sleep_for(milliseconds(1200));
  EXPECT_FALSE(ranks.watch().has_failed());
}

TEST(DeviceWatch, a_silent_peer_is_named_and_the_communicators_aborted) {
  expect_failure("never_done_and_peer_silent",
                 kRank +
                     "no answer from rank 1 in gradients \\(step 3\\): got nothing after [0-9.]+ s, expected an answer "
                     "within 1 s; rank 1 .*\\. Hint: rank 1 is stopped, or its machine or network is down\\.");
}

TEST(DeviceWatch, a_stuck_peer_is_named_with_its_place) {
  expect_failure(
      "never_done_and_peer_alive",
      kRank +
          "no answer from rank 1 in gradients \\(step 3\\): got nothing after .* s, expected an answer within "
          "1 s; rank 1 is alive and has been in forward \\(micro-step 0, step 3\\) for .* Hint: rank 1 is "
          "stuck or far slower than the others.*");
}

TEST(DeviceWatch, ranks_that_wait_for_each_other_are_told_with_their_work) {
  expect_failure(
      "never_done_and_peer_waits_too",
      kRank +
          "no answer from the other GPUs in gradients \\(step 3\\): got nothing after .* s, expected an answer "
          "within 1 s; rank 1 waits in weights \\(step 3\\)\\. Hint: the network between the GPUs is down, or "
          "these ranks wait for each other in different work: .*");
}

TEST(DeviceWatch, failed_work_is_a_lost_peer_in_the_words_of_nccl) {
  expect_failure(
      "work_failed_by_peer",
      kRank +
          "lost the connection to rank 1 in gradients \\(step 3\\) after .* s: remote process exited or there "
          "was a network error, NCCL version 2.28.9: Connection closed by 10.0.0.7\\. Hint: .*");
  expect_failure("wait_throws", kRank + "lost the connection to a peer in gradients .*: remote process exited\\. .*");
}

TEST(DeviceWatch, a_failure_of_nccl_here_is_this_ranks_own) {
  expect_failure("work_failed_here",
                 kRank +
                     "NCCL failed on this rank in gradients \\(step 3\\): got 'unhandled system error, NCCL version "
                     "2.28.9: Error while creating shared memory segment: No space left on device \\(28\\)', expected "
                     "success\\. Hint: .*");
  expect_failure("issue_throws", kRank + "NCCL failed on this rank in gradients .*unhandled cuda error, .*");
}

TEST(DeviceWatch, a_call_that_does_not_return_is_freed_by_the_abort) {
  expect_failure("issue_hangs", kRank + "no answer from rank 1 in gradients \\(step 3\\): got nothing after .*");
}

TEST(DeviceWatch, a_driver_that_does_not_answer_ends_the_process) {
  expect_failure("driver_hangs",
                 kRank + "no answer from rank 1 in work that the GPU's driver gives no answer about: .*");
}

TEST(DeviceWatch, a_host_that_hangs_after_a_failure_is_ended_with_its_message) {
  expect_failure("host_hangs_after_the_failure", kRank + "no answer from rank 1 in gradients \\(step 3\\): .*");
}

TEST(DeviceWatch, another_ranks_failure_ends_a_host_and_a_driver_that_hang) {
  expect_failure("host_and_driver_hang_after_a_note",
                 kRank +
                     "stopped in its work after .* s, because rank 1 reported: \\[train\\] out of memory: rank 1, "
                     "step 3");
}

TEST(DeviceWatch, another_ranks_failure_ends_the_work_in_flight) {
  expect_failure("another_rank_tells", kRank +
                                           "stopped in gradients \\(step 3\\) after .* s, because rank 1 reported: "
                                           "\\[train\\] out of memory: rank 1, step 3");
}

TEST(DeviceWatch, time_for_which_the_process_was_stopped_does_not_count) {
  const Outcome outcome = launch("stopped_for_longer_than_the_timeout");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.errors, "");
}

TEST(ProcessEnd, a_deadline_ends_the_process_with_its_message) {
  expect_failure("closing_hangs", "\\[test\\] it hangs");
}

TEST(ProcessEnd, what_hangs_after_the_work_changes_nothing) {
  const Outcome outcome = launch("the_end_hangs");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.errors, "");
}

TEST(ProcessEnd, a_deadline_that_is_met_or_granted_ends_nothing) {
  std::atomic<int> asked{0};
  {
    const Deadline limit(milliseconds(200), [&]() -> std::exception_ptr {
      ++asked;
      return nullptr;
    });
    std::this_thread::sleep_for(seconds(2));
  }
  EXPECT_GE(asked, 2);
}

}  // namespace
}  // namespace ringfold
