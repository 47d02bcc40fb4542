// Exchange and its helpers over Gloo, ranks as threads.
#include "ringfold/mesh/exchange.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "dist/thread_ranks.h"

namespace ringfold {
namespace {

TEST(Exchange, a_ring_hop_brings_the_previous_members_tensor) {
  for (const int world : {2, 4}) {
    run_ranks(world, [&](RankContext& at) {
      const CpGroup group = at.group(world);
      at::Tensor mine = at::full({3, 5}, at.rank.value(), at::kDouble);
      at::Tensor got = at::empty_like(mine);
      start_ring_hop(at.exchange, group, mine, got, {})->wait();
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
  });
}

}  // namespace
}  // namespace ringfold
