// Dead and silent peers, with real processes.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/process_ranks.h"
#include "ringfold/mesh/rendezvous.h"

namespace ringfold {
namespace {

using testing::HasSubstr;

enum class Work { kRing, kReduction };

// Works without end; says ready after the first round.
ProcessRanks::Body endless(Work work, std::chrono::milliseconds timeout) {
  return [=](const LaunchEnv& env, const std::function<void()>& ready) -> std::string {
    CommOptions options;
    options.timeout = timeout;
    Rendezvous rendezvous(env, options);
    std::vector<Rank> lane;
    for (int rank = 0; rank < env.world_size; ++rank) lane.emplace_back(rank);
    LaneComms comms = rendezvous.connect_lane(lane, "lane");
    const CpGroup group{LaneRank(0), env.world_size, env.rank.value()};
    at::Tensor values = at::zeros({1000});
    at::Tensor received = at::zeros({1000});
    for (int64_t step = 0;; ++step) {
      if (work == Work::kRing) {
        start_ring_hop(*comms.exchange, group, values, received, {.step = step})->wait();
      } else {
        comms.collectives->all_reduce_sum(values, "the gradient reduction");
      }
      if (step == 0) ready();
    }
  };
}

class PeerDeath : public testing::TestWithParam<Work> {};

TEST_P(PeerDeath, kill_9_reaches_every_other_rank_within_seconds) {
  ProcessRanks ranks(4, endless(GetParam(), std::chrono::seconds(60)));
  for (int rank = 0; rank < 4; ++rank) ranks.wait_ready(rank);
  const auto begin = std::chrono::steady_clock::now();
  ranks.signal(2, SIGKILL);
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(ranks.report(rank, 5000), HasSubstr("lost the connection to ")) << "rank " << rank;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_P(PeerDeath, a_stopped_rank_ends_the_others_after_the_timeout) {
  ProcessRanks ranks(4, endless(GetParam(), std::chrono::seconds(2)));
  for (int rank = 0; rank < 4; ++rank) ranks.wait_ready(rank);
  const auto begin = std::chrono::steady_clock::now();
  ranks.signal(2, SIGSTOP);
  std::string all;
  for (const int rank : {0, 1, 3}) {
    const std::string report = ranks.report(rank, 8000);
    EXPECT_THAT(report, HasSubstr("[mesh] rank " + std::to_string(rank))) << "rank " << rank;
    all += report;
  }
  // The first to give up met silence; the others may meet its closed connection.
  EXPECT_THAT(all, HasSubstr("expected an answer within 2 s"));
  EXPECT_THAT(all, HasSubstr("no answer from"));
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(elapsed, std::chrono::milliseconds(1800));
  EXPECT_LT(elapsed, std::chrono::seconds(5));
}

INSTANTIATE_TEST_SUITE_P(Works, PeerDeath, testing::Values(Work::kRing, Work::kReduction),
                         [](const auto& at) { return at.param == Work::kRing ? "ring" : "reduction"; });

TEST(PeerDeathAtStart, a_rank_that_died_before_agreeing_is_named) {
  ProcessRanks ranks(3, [](const LaunchEnv& env, const auto&) -> std::string {
    CommOptions options;
    options.timeout = std::chrono::seconds(1);
    Rendezvous rendezvous(env, options);
    if (env.rank == Rank(1)) raise(SIGKILL);
    rendezvous.agree("start", {env.rank, ExitCode::kOk, ""});
    return "agreed";
  });
  for (const int rank : {0, 2}) {
    EXPECT_THAT(ranks.report(rank, 5000),
                HasSubstr("start: got no word from rank(s) 1, expected all 3 ranks within 1 s"));
  }
}

TEST(PeerDeathAtStart, a_stopped_host_of_the_store_is_no_silent_hang) {
  LaunchEnv env;
  env.world_size = env.local_world_size = 2;
  // Any port will do that rank 0 gets; the kernel hands out others above it meanwhile.
  env.master_port = static_cast<uint16_t>(20000 + getpid() % 10000);
  ProcessRanks ranks(env, [](const LaunchEnv& own, const std::function<void()>& ready) -> std::string {
    CommOptions options;
    options.timeout = std::chrono::seconds(1);
    Rendezvous rendezvous(own, options);
    rendezvous.agree("start", {own.rank, ExitCode::kOk, ""});
    ready();
    if (own.rank == Rank(0)) raise(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    rendezvous.agree("data", {own.rank, ExitCode::kOk, ""});
    return "agreed";
  });
  ranks.wait_ready(1);
  EXPECT_THAT(ranks.report(1, 6000),
              HasSubstr("[mesh] rank 1: data: got no answer from the job's store at 127.0.0.1:"));
}

}  // namespace
}  // namespace ringfold
