#include "ringfold/data/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace ringfold {
namespace {

using ::testing::ElementsAre;

TEST(SampleOrder, is_file_order_without_shuffle) {
  EXPECT_THAT(sample_order(4, 3, 9, false), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(sample_order(0, 0, 0, true).empty());
  EXPECT_THAT(sample_order(1, 0, 0, true), ElementsAre(0));
}

TEST(SampleOrder, shuffled_is_a_permutation_that_seed_and_epoch_change) {
  std::set<std::vector<int64_t>> seen;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      std::vector<int64_t> order = sample_order(50, epoch, seed, true);
      EXPECT_EQ(order, sample_order(50, epoch, seed, true));
      EXPECT_TRUE(seen.insert(order).second) << "seed " << seed << ", epoch " << epoch;
      EXPECT_THAT(order, ::testing::UnorderedElementsAreArray(sample_order(50, 0, 0, false)));
    }
  }
}

TEST(SampleOrder, is_the_same_on_every_platform) {
  // A change of this order changes what resumed and repeated runs train on.
  EXPECT_THAT(sample_order(8, 0, 0, true), ElementsAre(1, 0, 6, 4, 3, 5, 2, 7));
  EXPECT_THAT(sample_order(8, 1, 1234, true), ElementsAre(2, 0, 5, 6, 7, 1, 3, 4));
}

TEST(SampleOrder, every_permutation_is_about_as_likely) {
  std::map<std::vector<int64_t>, int> counts;
  for (uint64_t seed = 0; seed < 6000; ++seed) ++counts[sample_order(3, 0, seed, true)];
  EXPECT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(GlobalBatch, cuts_epochs_and_keeps_the_short_last_batch) {
  EXPECT_EQ(steps_per_epoch(10, 4), 3);
  EXPECT_EQ(steps_per_epoch(8, 4), 2);
  EXPECT_EQ(steps_per_epoch(3, 4), 1);
  EXPECT_EQ(steps_per_epoch(10, 0), 1);
  EXPECT_THAT(global_batch(10, 4, 1, 0, false).indices, ElementsAre(0, 1, 2, 3));
  const GlobalBatch third = global_batch(10, 4, 3, 0, false);
  EXPECT_THAT(third.indices, ElementsAre(8, 9));
  EXPECT_EQ(third.epoch, 0);
  EXPECT_EQ(third.epochs_done, 1.0);
  const GlobalBatch fourth = global_batch(10, 4, 4, 0, false);
  EXPECT_THAT(fourth.indices, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(fourth.epoch, 1);
  EXPECT_DOUBLE_EQ(fourth.epochs_done, 1.4);
  EXPECT_EQ(global_batch(10, 4, 6, 0, false).epochs_done, 2.0);
}

TEST(GlobalBatch, without_a_size_all_samples_are_one_step) {
  EXPECT_EQ(global_batch(5, 0, 2, 0, false).indices.size(), 5u);
  EXPECT_EQ(global_batch(5, 0, 2, 0, false).epoch, 1);
  EXPECT_EQ(global_batch(5, INT64_MAX, 2, 0, false).indices.size(), 5u);
}

TEST(GlobalBatch, every_sample_comes_once_an_epoch_when_shuffled) {
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> seen;
    for (int64_t step = 1; step <= 4; ++step) {
      const GlobalBatch batch = global_batch(13, 4, epoch * 4 + step, 7, true);
      EXPECT_EQ(batch.epoch, epoch);
      seen.insert(seen.end(), batch.indices.begin(), batch.indices.end());
    }
    EXPECT_EQ(seen, sample_order(13, epoch, 7, true));
  }
}

}  // namespace
}  // namespace ringfold
