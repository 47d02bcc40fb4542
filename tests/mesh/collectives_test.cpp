#include "ringfold/mesh/collectives.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "dist/thread_ranks.h"

namespace ringfold {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Awkward: less than the world, not a multiple of it, and larger than Gloo's segments.
const std::vector<int64_t> kSizes = {1, 2, 3, 5, 7, 64, 1001, 300007};

at::Tensor random_values(int64_t size, at::ScalarType type, int rank) {
  auto generator = at::detail::createCPUGenerator(1000 + rank);
  // Many magnitudes, so that another order of addition gives other bits.
  return (at::randn({size}, generator, at::kDouble) * at::pow(10.0, at::randn({size}, generator, at::kDouble) * 4))
      .to(type);
}

std::vector<at::Tensor> sums_of_all_ranks(int world, int64_t size, at::ScalarType type) {
  std::vector<at::Tensor> result(world);
  run_ranks(world, [&](RankContext& at) {
    at::Tensor values = random_values(size, type, at.rank.value());
    at.collectives.all_reduce_sum(values, "gradients");
    result[at.rank.value()] = values;
  });
  return result;
}

TEST(Collectives, sums_have_the_same_bits_on_every_rank_and_every_run) {
  for (const int world : {2, 3, 4, 8}) {
    run_ranks(world, [&](RankContext& at) {
      for (const auto type : {at::kFloat, at::kDouble}) {
        for (const int64_t size : kSizes) {
          at::Tensor first = random_values(size, type, at.rank.value());
          at::Tensor second = first.clone();
          at.collectives.all_reduce_sum(first, "gradients");
          at.collectives.all_reduce_sum(second, "gradients");
          EXPECT_TRUE(at::equal(first, second)) << world << " ranks, size " << size;
          const at::Tensor bits = first.view(type == at::kFloat ? at::kInt : at::kLong).to(at::kLong);
          const auto hash = std::bit_cast<uint64_t>((bits * at::arange(1, size + 1, at::kLong)).sum().item<int64_t>());
          for (const uint64_t other : at.collectives.all_gather_u64(hash, "hash")) {
            EXPECT_EQ(other, hash) << world << " ranks, size " << size;
          }
        }
      }
    });
  }
}

TEST(Collectives, sums_have_the_same_bits_in_another_job) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto first = sums_of_all_ranks(4, 1001, type);
    const auto second = sums_of_all_ranks(4, 1001, type);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(at::equal(first[0], first[rank]));
      EXPECT_TRUE(at::equal(first[0], second[rank]));
    }
  }
}

TEST(Collectives, sums_are_right) {
  const auto sums = sums_of_all_ranks(3, 1001, at::kDouble);
  at::Tensor expected = at::zeros({1001}, at::kDouble);
  for (int rank = 0; rank < 3; ++rank) expected += random_values(1001, at::kDouble, rank);
  EXPECT_TRUE(at::allclose(sums[1], expected, 1e-9));
  run_ranks(3, [](RankContext& at) {
    at::Tensor counts = at::full({2, 2}, int64_t{1} << 60, at::kLong) + at.rank.value();
    at.collectives.all_reduce_sum(counts, "counts");
    EXPECT_TRUE(at::equal(counts, at::full({2, 2}, 3 * (int64_t{1} << 60) + 3, at::kLong)));
  });
}

TEST(Collectives, reduce_scatter_and_all_gather_are_an_all_reduce) {
  for (const int world : {2, 3, 4}) {
    // The last spans several blocks of a slice.
    for (const int64_t slice : {0, 1, 5, 1001, 1500007}) {
      run_ranks(world, [&](RankContext& at) {
        for (const auto type : {at::kFloat, at::kDouble}) {
          at::Tensor whole = random_values(slice * world, type, at.rank.value());
          at::Tensor sum = whole.clone();
          at.collectives.all_reduce_sum(sum, "gradients");
          at.collectives.reduce_scatter_sum(whole, "gradients");
          const at::Tensor own = lane_slice(at.collectives, whole, at.rank.value());
          EXPECT_TRUE(at::equal(own, lane_slice(at.collectives, sum, at.rank.value()))) << slice;
          // What the other slices hold after the reduction does not matter.
          for (int i = 0; i < world; ++i) {
            if (i != at.rank.value()) lane_slice(at.collectives, whole, i).fill_(std::nan(""));
          }
          at.collectives.all_gather(whole, "weights");
          EXPECT_TRUE(at::equal(whole, sum)) << world << " ranks, slices of " << slice;
        }
      });
    }
  }
}

TEST(Collectives, all_gather_takes_any_type) {
  run_ranks(2, [](RankContext& at) {
    at::Tensor weights = at::full({2, 3}, at.rank.value() + 0.5, at::kBFloat16);
    at.collectives.all_gather(weights, "weights");
    EXPECT_TRUE(at::equal(weights[0], at::full({3}, 0.5, at::kBFloat16)));
    EXPECT_TRUE(at::equal(weights[1], at::full({3}, 1.5, at::kBFloat16)));
  });
}

TEST(Collectives, max_broadcast_and_barrier) {
  run_ranks(4, [](RankContext& at) {
    at::Tensor values = at::full({3}, -1.0 - at.rank.value(), at::kDouble);
    at.collectives.all_reduce_max(values, "max");
    EXPECT_TRUE(at::equal(values, at::full({3}, -1.0, at::kDouble)));
    at::Tensor weights = at::full({2, 3}, at.rank.value(), at::kFloat);
    at.collectives.broadcast(weights, LaneRank(2), "weights");
    EXPECT_TRUE(at::equal(weights, at::full({2, 3}, 2, at::kFloat)));
    at.collectives.barrier("end");
    EXPECT_EQ(at.collectives.size(), 4);
    EXPECT_EQ(at.collectives.rank(), at.lane_rank);
  });
}

TEST(Collectives, gather_one_value_a_rank_by_lane_rank) {
  run_ranks(3, [](RankContext& at) {
    const uint64_t high = std::numeric_limits<uint64_t>::max() - at.rank.value();
    const auto hashes = at.collectives.all_gather_u64(high, "plan hash");
    const auto times = at.collectives.all_gather_double(0.5 * at.rank.value(), "times");
    ASSERT_EQ(hashes.size(), 3U);
    ASSERT_EQ(times.size(), 3U);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(hashes[i], std::numeric_limits<uint64_t>::max() - i);
      EXPECT_EQ(times[i], 0.5 * i);
    }
  });
}

TEST(Collectives, an_empty_tensor_is_left_alone_by_all) {
  run_ranks(2, [](RankContext& at) {
    at::Tensor nothing = at::empty({0});
    at.collectives.all_reduce_sum(nothing, "nothing");
    at.collectives.broadcast(nothing, LaneRank(0), "nothing");
    EXPECT_EQ(at.collectives.all_gather_double(1, "after").size(), 2U);
  });
}

TEST(Collectives, run_beside_exchanges_that_are_under_way) {
  run_ranks(2, [](RankContext& at) {
    const at::Tensor mine = at::full({1000}, at.rank.value(), at::kDouble);
    const at::Tensor got = at::empty_like(mine);
    const auto pending = start_ring_hop(at.exchange, at.group(2), mine, got, {});
    at::Tensor values = at::ones({1000});
    at.collectives.all_reduce_sum(values, "gradients");
    pending->wait();
    EXPECT_EQ(values[999].item<int>(), 2);
    EXPECT_EQ(got[999].item<int>(), 1 - at.rank.value());
  });
}

TEST(Collectives, one_rank_keeps_its_values) {
  run_ranks(1, [](RankContext& at) {
    at::Tensor values = at::full({2}, std::nan(""));
    at.collectives.all_reduce_sum(values, "gradients");
    at.collectives.all_reduce_max(values, "max");
    at.collectives.broadcast(values, LaneRank(0), "weights");
    at.collectives.reduce_scatter_sum(values, "gradients");
    at.collectives.all_gather(values, "weights");
    at.collectives.barrier("end");
    EXPECT_TRUE(values.isnan().all().item<bool>());
    EXPECT_EQ(at.collectives.all_gather_u64(9, "hash"), std::vector<uint64_t>{9});
    EXPECT_EQ(at.collectives.all_gather_double(2.5, "time"), std::vector<double>{2.5});
    EXPECT_EQ(at.collectives.size(), 1);
  });
}

TEST(Collectives, a_silent_rank_is_an_error_that_names_the_operation) {
  std::string message;
  run_ranks(
      2,
      [&](RankContext& at) {
        if (at.rank == Rank(1)) return;
        at::Tensor values = at::ones({4});
        try {
          at.collectives.all_reduce_sum(values, "the gradient reduction of step 3");
        } catch (const PeerError& error) {
          message = error.what();
        }
      },
      std::chrono::milliseconds(300));
  EXPECT_THAT(
      message,
      AllOf(HasSubstr("[mesh] rank 0 (lane rank 0): no answer from rank 1 (lane rank 1) in the gradient reduction of "
                      "step 3: got nothing after "),  // 0.3 s and what it takes to notice
            HasSubstr(" s, expected an answer within 0.3 s; rank 1 is alive and has been in starting for ")));
}

}  // namespace
}  // namespace ringfold
