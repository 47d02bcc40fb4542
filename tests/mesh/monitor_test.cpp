// The monitor: a rank that gets on is waited for, one that does not is named with its place; a cause reaches all.
#include "ringfold/mesh/monitor.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/thread_ranks.h"

namespace ringfold {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTimeout{600};

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const PeerError& error) {
    return error.what();
  }
  return "no failure";
}

void reduce(RankContext& at, std::string_view what) {
  at::Tensor values = at::ones({4});
  at.collectives.all_reduce_sum(values, what);
}

TEST(Monitor, a_rank_that_gets_on_is_waited_for_beyond_the_timeout) {
  const auto begin = Clock::now();
  run_ranks(
      3,
      [](RankContext& at) {
        if (at.rank == Rank(2)) {
          for (int micro_step = 0; micro_step < 8; ++micro_step) {
            at.rendezvous.monitor()->enter("forward", 1, micro_step);
            std::this_thread::sleep_for(kTimeout / 3);
          }
        }
        reduce(at, "gradients");
      },
      kTimeout);
  EXPECT_GT(Clock::now() - begin, 2 * kTimeout);
}

TEST(Monitor, the_wait_for_a_rank_that_waits_for_another_is_followed_to_its_end) {
  // Rank 0 waits for rank 1, which waits for rank 2, which does not get on.
  std::vector<std::string> messages(3);
  run_ranks(
      3,
      [&](RankContext& at) {
        if (at.rank == Rank(2)) {
          at.rendezvous.monitor()->enter("backward", 7, 4);
          std::this_thread::sleep_for(3 * kTimeout);
          return;
        }
        const at::Tensor mine = at::zeros({4});
        const CpGroup pair{at.rank == Rank(0) ? LaneRank(0) : LaneRank(1), 2, 0};
        const ExchangeKey key{.step = 7, .micro_step = 4, .layer = at.rank.value(), .phase = Phase::kForward};
        messages[at.rank.value()] =
            failure_of([&] { start_ring_hop(at.exchange, pair, mine, at::empty_like(mine), key)->wait(); });
      },
      kTimeout);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(messages[rank], HasSubstr("rank 2 is alive and has been in backward (micro-step 4, step 7) for "))
        << rank;
    EXPECT_THAT(messages[rank], HasSubstr("Hint: rank 2 is stuck or far slower than the others")) << rank;
  }
}

TEST(Monitor, the_cause_that_a_rank_tells_ends_every_wait) {
  std::vector<std::string> messages(4);
  const auto begin = Clock::now();
  run_ranks(
      4,
      [&](RankContext& at) {
        if (at.rank == Rank(3)) {
          at.rendezvous.tell_failure("[train] out of memory: rank 3, step 2");
          // Its connections stay open for a while.
          std::this_thread::sleep_for(std::chrono::seconds(2));
          return;
        }
        at.rendezvous.monitor()->enter("reduction", 2, -1);
        messages[at.rank.value()] = failure_of([&] { reduce(at, "gradients"); });
      },
      std::chrono::seconds(20));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(8));
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(messages[rank], HasSubstr("stopped in gradients (step 2) after ")) << rank;
    EXPECT_THAT(messages[rank], HasSubstr("because rank 3 reported: [train] out of memory: rank 3, step 2")) << rank;
  }
}

TEST(Monitor, of_its_own_note_a_rank_tells_the_text) {
  std::vector<std::string> messages(2);
  bool echo = true;
  run_ranks(
      2,
      [&](RankContext& at) {
        if (at.rank == Rank(0)) at.rendezvous.monitor()->leave_note("[mesh] rank 0: no answer", /*echo=*/false);
        try {
          reduce(at, at.rank == Rank(0) ? "gradients" : "other work");
        } catch (const PeerError& error) {
          messages[at.rank.value()] = error.what();
          if (at.rank == Rank(0)) echo = error.is_echo();
        }
      },
      std::chrono::seconds(20));
  EXPECT_EQ(messages[0], "[mesh] rank 0: no answer");
  EXPECT_FALSE(echo);
  EXPECT_THAT(messages[1], HasSubstr("because rank 0 reported: [mesh] rank 0: no answer"));
}

TEST(Monitor, loading_may_take_longer_than_the_start_up_limit) {
  const auto begin = Clock::now();
  std::vector<std::string> messages(2);
  const auto store = share_store(c10::make_intrusive<c10d::HashStore>());
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      CommOptions options;
      options.timeout = std::chrono::seconds(20);
      options.startup_limit = milliseconds(500);
      Rendezvous rendezvous(store, Rank(rank), 2, options);
      if (rank == 1) std::this_thread::sleep_for(milliseconds(2500));
      messages[rank] = failure_of([&] { rendezvous.agree("start", {Rank(rank), ExitCode::kOk, ""}); });
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_GT(Clock::now() - begin, milliseconds(2400));
  EXPECT_EQ(messages, (std::vector<std::string>{"no failure", "no failure"}));
}

TEST(Monitor, a_rank_that_falls_silent_while_loading_is_named_after_the_start_up_limit) {
  const auto store = share_store(c10::make_intrusive<c10d::HashStore>());
  CommOptions options;
  options.timeout = std::chrono::seconds(20);
  options.startup_limit = milliseconds(1000);
  {
    Rendezvous ended(store, Rank(1), 2, options);
    ended.monitor()->enter("loading", 0, -1);
    std::this_thread::sleep_for(milliseconds(700));
  }
  Rendezvous rendezvous(store, Rank(0), 2, options);
  const auto begin = Clock::now();
  const std::string message = failure_of([&] { rendezvous.agree("start", {Rank(0), ExitCode::kOk, ""}); });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  EXPECT_THAT(message, HasSubstr("got no word from rank(s) 1, expected all 2 ranks within 1 s; rank 1 "));
  EXPECT_THAT(message, HasSubstr("in loading"));
}

}  // namespace
}  // namespace ringfold
