// Exchange and its helpers over Gloo, ranks as threads.
#include "ringfold/mesh/exchange.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/thread_ranks.h"

namespace ringfold {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(Exchange, a_ring_hop_brings_the_previous_members_tensor) {
  for (const int world : {2, 4}) {
    run_ranks(world, [&](RankContext& at) {
      at::Tensor mine = at::full({3, 5}, at.rank.value(), at::kDouble);
      at::Tensor got = at::empty_like(mine);
      start_ring_hop(at.exchange, at.group(world), mine, got, {})->wait();
      EXPECT_TRUE(at::equal(got, at::full({3, 5}, (at.rank.value() + world - 1) % world, at::kDouble)));
    });
  }
}

TEST(Exchange, all_gather_returns_every_members_tensor_by_index) {
  run_ranks(4, [](RankContext& at) {
    at::Tensor mine = at::arange(6, at::kFloat).view({2, 3}) + 100 * at.rank.value();
    const auto all = all_gather(at.exchange, at.group(4), mine, {});
    ASSERT_EQ(all.size(), 4U);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(all[i], at::arange(6, at::kFloat).view({2, 3}) + 100 * i));
    EXPECT_EQ(all[at.rank.value()].data_ptr(), mine.data_ptr());
  });
}

TEST(Exchange, reduce_scatter_adds_what_the_members_sent_here) {
  run_ranks(4, [](RankContext& at) {
    std::vector<at::Tensor> parts;
    for (int to = 0; to < 4; ++to) parts.push_back(at::full({7}, 10 * at.rank.value() + to, at::kDouble));
    const at::Tensor sum = reduce_scatter(at.exchange, at.group(4), parts, {});
    EXPECT_TRUE(at::equal(sum, at::full({7}, 60 + 4 * at.rank.value(), at::kDouble)));
    EXPECT_TRUE(at::equal(parts[at.rank.value()], at::full({7}, 11 * at.rank.value(), at::kDouble)));
  });
}

TEST(Exchange, reduce_scatter_adds_in_group_order) {
  // 1e16 + 1 - 1e16 tells the orders apart.
  const std::vector<double> terms = {1e16, 1.0, -1e16, 1.0};
  const double in_order = ((terms[0] + terms[1]) + terms[2]) + terms[3];
  run_ranks(4, [&](RankContext& at) {
    const std::vector<at::Tensor> parts(4, at::full({1}, terms[at.rank.value()], at::kDouble));
    EXPECT_EQ(reduce_scatter(at.exchange, at.group(4), parts, {}).item<double>(), in_order);
  });
}

TEST(Exchange, all_to_all_sends_each_member_its_part) {
  run_ranks(4, [](RankContext& at) {
    const int me = at.rank.value();
    std::vector<at::Tensor> parts, wanted;
    for (int other = 0; other < 4; ++other) {
      parts.push_back(at::full({2, 3}, 10 * me + other, at::kDouble));
      wanted.push_back(at::full({2, 3}, 10 * other + me, at::kDouble));
    }
    EXPECT_TRUE(at::equal(all_to_all(at.exchange, at.group(4), at::stack(parts), {}), at::stack(wanted)));
  });
}

TEST(Exchange, a_group_of_one_needs_no_backend) {
  run_ranks(1, [](RankContext& at) {
    const at::Tensor mine = at::ones({3});
    EXPECT_EQ(all_gather(at.exchange, CpGroup{}, mine, {})[0].data_ptr(), mine.data_ptr());
    EXPECT_EQ(reduce_scatter(at.exchange, CpGroup{}, std::vector{mine}, {}).data_ptr(), mine.data_ptr());
  });
}

TEST(Exchange, groups_of_different_sizes_run_at_the_same_time) {
  run_ranks(8, [](RankContext& at) {
    // Ranks 0-3 form one group of four; 4-5 and 6-7 one of two each; then all eight meet.
    const CpGroup group = at.group(at.rank.value() < 4 ? 4 : 2);
    for (int layer = 0; layer < 3; ++layer) {
      const auto all = all_gather(at.exchange, group, at::full({5}, 10 * at.rank.value() + layer, at::kLong), {});
      for (int i = 0; i < group.size; ++i) EXPECT_EQ(all[i][4].item<int64_t>(), 10 * group.member(i).value() + layer);
    }
    const auto everyone = all_gather(at.exchange, at.group(8), at::full({1}, at.rank.value(), at::kLong), {});
    for (int i = 0; i < 8; ++i) EXPECT_EQ(everyone[i].item<int64_t>(), i);
  });
}

TEST(Exchange, many_exchanges_of_one_pair_may_be_under_way_in_both_directions) {
  constexpr int kCount = 200;
  run_ranks(2, [](RankContext& at) {
    std::vector<std::unique_ptr<PendingExchange>> pending;
    std::vector<at::Tensor> sent, got;
    for (int i = 0; i < kCount; ++i) {
      sent.push_back(at::full({i + 1}, 1000 * at.rank.value() + i, at::kInt));
      got.push_back(at::empty({i + 1}, at::kInt));
      pending.push_back(start_ring_hop(at.exchange, at.group(2), sent[i], got[i], {}));
    }
    // Waiting out of order must not matter.
    for (int i = kCount - 1; i >= 0; --i) pending[i]->wait();
    for (int i = 0; i < kCount; ++i) {
      EXPECT_TRUE(at::equal(got[i], at::full({i + 1}, 1000 * (1 - at.rank.value()) + i, at::kInt))) << i;
    }
  });
}

TEST(Exchange, large_tensors_cross_in_both_directions) {
  constexpr int64_t kElements = 16 << 20;  // 64 MB of floats
  run_ranks(2, [](RankContext& at) {
    const at::Tensor mine = at::arange(kElements, at::kInt).add_(at.rank.value());
    const at::Tensor got = at::empty_like(mine);
    start_ring_hop(at.exchange, at.group(2), mine, got, {})->wait();
    EXPECT_TRUE(at::equal(got - mine, at::full({1}, 1 - 2 * at.rank.value(), at::kInt).expand({kElements})));
  });
}

TEST(Exchange, empty_and_undefined_tensors_are_left_out_on_both_sides) {
  run_ranks(2, [](RankContext& at) {
    const CpGroup group = at.group(2);
    const at::Tensor nothing = at::empty({0, 4});
    start_ring_hop(at.exchange, group, nothing, at::empty({0, 4}), {})->wait();
    at.exchange.start(group, {}, {})->wait();
    EXPECT_EQ(all_gather(at.exchange, group, nothing, {})[1 - at.rank.value()].size(1), 4);
    EXPECT_EQ(reduce_scatter(at.exchange, group, std::vector{nothing, nothing}, {}).numel(), 0);
    // One way only.
    at::Tensor payload = at::full({3}, 7.0);
    const Transfer transfer = at.rank == Rank(0) ? Transfer{1, payload, nothing} : Transfer{0, {}, payload.zero_()};
    at.exchange.start(group, std::span(&transfer, 1), {})->wait();
    EXPECT_TRUE(at::equal(payload, at::full({3}, 7.0)));
    // The tags still match afterwards.
    EXPECT_EQ(all_gather(at.exchange, group, at::full({1}, at.rank.value()), {})[1].item<int>(), 1);
  });
}

TEST(Exchange, carries_half_precision_and_bytes) {
  run_ranks(2, [](RankContext& at) {
    for (const auto type : {at::kBFloat16, at::kHalf, at::kByte, at::kBool}) {
      const at::Tensor mine = at::full({9}, at.rank.value(), type);
      EXPECT_TRUE(at::equal(all_gather(at.exchange, at.group(2), mine, {})[1], at::ones({9}, type)));
    }
  });
}

TEST(Exchange, usage_counts_sent_bytes_and_time_blocked_and_starts_anew) {
  run_ranks(2, [](RankContext& at) {
    const at::Tensor mine = at::zeros({10}, at::kDouble);
    const at::Tensor got = at::empty_like(mine);
    if (at.rank == Rank(1)) std::this_thread::sleep_for(milliseconds(200));
    start_ring_hop(at.exchange, at.group(2), mine, got, {})->wait();
    const auto usage = at.exchange.take_usage();
    EXPECT_EQ(usage.sent_bytes, 80);
    if (at.rank == Rank(0)) {
      EXPECT_GT(usage.exposed_seconds, 0.1);
    }
    EXPECT_EQ(at.exchange.take_usage().sent_bytes, 0);
    EXPECT_EQ(at.exchange.take_usage().exposed_seconds, 0);
  });
}

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const PeerError& error) {
    return error.what();
  }
  return "no failure";
}

TEST(Exchange, a_silent_peer_is_named_with_operation_and_step) {
  std::string message;
  run_ranks(
      2,
      [&](RankContext& at) {
        if (at.rank == Rank(1)) return;
        const at::Tensor mine = at::zeros({10});
        const ExchangeKey key{.step = 12, .micro_step = 3, .layer = 7, .phase = Phase::kBackward};
        message =
            failure_of([&] { start_ring_hop(at.exchange, at.group(2), mine, at::empty_like(mine), key)->wait(); });
      },
      milliseconds(300));
  EXPECT_THAT(message,
              testing::MatchesRegex(
                  "\\[mesh\\] rank 0 \\(lane rank 0\\): no answer from rank 1 \\(lane rank 1\\) in a "
                  "context-parallel exchange \\(backward, layer 7, micro-step 3, step 12\\): got nothing after "
                  "[0-9.]+ s, expected an answer within 0.3 s; rank 1 is alive and has been in starting for .*"));
  EXPECT_THAT(message, HasSubstr("Hint: rank 1 is stuck or far slower than the others; raise --comm-timeout-seconds"));
}

TEST(Exchange, ranks_that_do_different_work_are_told_so) {
  // Same peers, same sizes: only the names tell that the ranks have diverged.
  std::vector<std::string> messages(2);
  run_ranks(
      2,
      [&](RankContext& at) {
        at::Tensor values = at::ones({4});
        messages[at.rank.value()] =
            failure_of([&] { at.collectives.all_reduce_sum(values, at.rank == Rank(0) ? "gradients" : "loss sums"); });
        EXPECT_EQ(values.sum().item<float>(), 4);
      },
      milliseconds(500));
  for (const std::string& message : messages) {
    EXPECT_THAT(message,
                HasSubstr("Hint: these ranks wait for each other in different work: do all run the same binary"));
  }
  // The first to give up tells what it saw; the other repeats it.
  EXPECT_THAT(messages[0], testing::AnyOf(HasSubstr("rank 1 waits for rank 0 in loss sums"),
                                          HasSubstr("rank 0 waits for rank 1 in gradients")));
}

TEST(Exchange, ranks_that_disagree_on_a_size_never_take_part_of_a_tensor) {
  for (const int64_t received : {5, 20}) {
    at::Tensor got = at::zeros({received});
    std::string message;
    run_ranks(
        2,
        [&](RankContext& at) {
          const Transfer transfer = at.rank == Rank(0) ? Transfer{1, at::ones({10}), {}} : Transfer{0, {}, got};
          const std::string failure =
              failure_of([&] { at.exchange.start(at.group(2), std::span(&transfer, 1), {})->wait(); });
          if (at.rank == Rank(1)) message = failure;
        },
        milliseconds(300));
    EXPECT_THAT(message, HasSubstr("rank 1 (lane rank 1)"));
    EXPECT_EQ(got.sum().item<float>(), 0);
  }
}

TEST(Exchange, a_peer_that_has_ended_is_noticed_at_once) {
  std::string message;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(run_ranks(2,
                         [&](RankContext& at) {
                           if (at.rank == Rank(1)) throw RunError("out of memory");
                           const at::Tensor mine = at::zeros({10});
                           message = failure_of([&] {
                             start_ring_hop(at.exchange, at.group(2), mine, at::empty_like(mine), {})->wait();
                           });
                         }),
               RunError);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_THAT(message,
              HasSubstr("lost the connection to rank 1 (lane rank 1) in a context-parallel exchange (forward"));
  EXPECT_THAT(message, HasSubstr("Hint: that rank has ended, or its machine is down; its own last lines tell more."));
}

TEST(ThreadRanks, the_cause_is_rethrown_not_its_echo) {
  try {
    run_ranks(4, [](RankContext& at) {
      if (at.rank == Rank(2)) throw DataError("line 5 is broken");
      all_gather(at.exchange, at.group(4), at::zeros({1}), {});
    });
    FAIL() << "nothing was thrown";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "line 5 is broken");
  }
}

TEST(ExchangeDeathTest, our_own_mistakes_are_asserted) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(run_ranks(1, [](RankContext& at) { at.exchange.start(CpGroup{}, {}, {}); }), "exchanges nothing");
  EXPECT_DEATH(run_ranks(2,
                         [](RankContext& at) {
                           const at::Tensor mine = at::zeros({4, 4}).t();
                           start_ring_hop(at.exchange, at.group(2), mine, at::empty({4, 4}), {})->wait();
                         }),
               "contiguous");
  EXPECT_DEATH(run_ranks(2,
                         [](RankContext& at) {
                           start_ring_hop(at.exchange, at.group(2), at::zeros({4}), at::empty({5}), {})->wait();
                         }),
               "sends 16 and receives 20 bytes");
}

}  // namespace
}  // namespace ringfold
