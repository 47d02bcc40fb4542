#include "ringfold/plan/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

namespace ringfold {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The same rules in their plainest form: every state holds all k sets with their item lists, the next two states are
// found by looking at all of them, and sets compare by (sum, count, item list).
struct PlainSet {
  int64_t sum = 0;
  size_t count = 0;
  std::vector<int> items;
  auto operator<=>(const PlainSet&) const = default;
};
using PlainState = std::vector<PlainSet>;

bool plain_before(const PlainState& a, const PlainState& b) {
  const int64_t spread_a = a.front().sum - a.back().sum, spread_b = b.front().sum - b.back().sum;
  return spread_a != spread_b ? spread_a > spread_b : a.front() > b.front();
}

std::vector<Part> plain_karmarkar_karp(const std::vector<int64_t>& weights, int parts) {
  const size_t k = static_cast<size_t>(parts);
  std::vector<PlainState> states;
  for (size_t i = 0; i < weights.size(); ++i) {
    PlainState state(k);
    state[0] = {weights[i], 1, {static_cast<int>(i)}};
    states.push_back(state);
  }
  while (states.size() > 1) {
    std::sort(states.begin(), states.end(), plain_before);
    PlainState merged = states[0];
    for (size_t i = 0; i < k; ++i) {
      const PlainSet& other = states[1][k - 1 - i];
      merged[i].sum += other.sum;
      merged[i].count += other.count;
      merged[i].items.insert(merged[i].items.end(), other.items.begin(), other.items.end());
    }
    std::sort(merged.begin(), merged.end(), std::greater<>());
    states.erase(states.begin(), states.begin() + 2);
    states.push_back(merged);
  }
  std::vector<Part> result(k);
  if (states.empty()) return result;
  for (size_t i = 0; i < k; ++i) {
    result[i] = states[0][i].items;
    std::sort(result[i].begin(), result[i].end());
  }
  return result;
}

int64_t sum_of(const std::vector<int64_t>& weights, const Part& part) {
  const auto picked = gather(weights, part);
  return std::accumulate(picked.begin(), picked.end(), int64_t{0});
}

TEST(KarmarkarKarp, known_two_way_difference) {
  // The textbook example: 8 7 6 5 4 differences to 2, although 8 + 7 = 6 + 5 + 4 is perfect.
  const std::vector<int64_t> weights{8, 7, 6, 5, 4};
  const auto parts = karmarkar_karp(weights, 2);
  EXPECT_EQ(sum_of(weights, parts[0]) - sum_of(weights, parts[1]), 2);
  EXPECT_THAT(parts, ElementsAre(ElementsAre(1, 3, 4), ElementsAre(0, 2)));
}

TEST(KarmarkarKarp, equal_weights_break_ties_by_index) {
  // Of two equal states the one with the higher index is popped first, so it heads the first part.
  EXPECT_THAT(karmarkar_karp(std::vector<int64_t>{5, 5}, 2), ElementsAre(ElementsAre(1), ElementsAre(0)));
  EXPECT_THAT(karmarkar_karp(std::vector<int64_t>{500, 500, 500}, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

TEST(KarmarkarKarp, fewer_items_than_parts_leaves_the_last_parts_empty) {
  EXPECT_THAT(karmarkar_karp(std::vector<int64_t>{3, 9}, 4),
              ElementsAre(ElementsAre(1), ElementsAre(0), IsEmpty(), IsEmpty()));
  EXPECT_THAT(karmarkar_karp({}, 2), ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(KarmarkarKarp, one_part_takes_all_in_order) {
  EXPECT_THAT(karmarkar_karp(std::vector<int64_t>{4, 1, 3}, 1), ElementsAre(ElementsAre(0, 1, 2)));
}

RC_GTEST_PROP(KarmarkarKarp, equals_the_plain_form_of_its_rules, ()) {
  // Few distinct weights, so that ties of every kind occur.
  const auto distinct = *rc::gen::inRange<int64_t>(1, 40);
  const auto weights = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, distinct + 1));
  const auto parts = *rc::gen::inRange(1, 9);
  RC_ASSERT(karmarkar_karp(weights, parts) == plain_karmarkar_karp(weights, parts));
}

RC_GTEST_PROP(KarmarkarKarp, places_every_item_once_and_empties_no_part, ()) {
  const auto weights = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, int64_t{1} << 40));
  const auto parts = *rc::gen::inRange(1, 20);
  const auto split = karmarkar_karp(weights, parts);
  std::vector<int> seen(weights.size(), 0);
  size_t filled = 0;
  int64_t previous = INT64_MAX;
  for (const Part& part : split) {
    filled += part.empty() ? 0 : 1;
    RC_ASSERT(std::is_sorted(part.begin(), part.end()));
    for (const int item : part) ++seen[static_cast<size_t>(item)];
    RC_ASSERT(sum_of(weights, part) <= previous);
    previous = sum_of(weights, part);
  }
  RC_ASSERT(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  RC_ASSERT(filled == std::min(weights.size(), static_cast<size_t>(parts)));
}

TEST(KarmarkarKarp, is_close_to_the_brute_force_optimum) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<int64_t> weights(8);
    for (auto& weight : weights) weight = 1 + static_cast<int64_t>(random() % 1000);
    int64_t best = INT64_MAX;
    for (int code = 0; code < 6561; ++code) {  // 3^8 assignments
      int64_t sums[3] = {0, 0, 0};
      for (int i = 0, rest = code; i < 8; ++i, rest /= 3) sums[rest % 3] += weights[static_cast<size_t>(i)];
      best = std::min(best, std::max({sums[0], sums[1], sums[2]}));
    }
    const int64_t found = sum_of(weights, karmarkar_karp(weights, 3)[0]);
    EXPECT_GE(found, best);
    EXPECT_LE(static_cast<double>(found), 1.2 * static_cast<double>(best));
  }
}

TEST(KarmarkarKarp, splits_thousands_of_items_quickly) {
  std::mt19937_64 random(11);
  std::vector<int64_t> weights(4096);
  for (auto& weight : weights) weight = 1 + static_cast<int64_t>(random() % 32768);
  const auto start = std::chrono::steady_clock::now();
  const auto parts = karmarkar_karp(weights, 64);
  const auto many = karmarkar_karp(weights, 1024);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LE(sum_of(weights, parts.front()) - sum_of(weights, parts.back()), 64);
  EXPECT_EQ(many.size(), 1024u);
  EXPECT_LT(seconds, 1.0);
  RecordProperty("seconds", std::to_string(seconds));
}

TEST(FirstFit, counts_bins_in_arrival_order) {
  EXPECT_EQ(first_fit_count(std::vector<int64_t>{}, 10), 0);
  EXPECT_EQ(first_fit_count(std::vector<int64_t>{6, 6, 4, 4}, 10), 2);
  EXPECT_EQ(first_fit_count(std::vector<int64_t>{4, 4, 6, 6}, 10), 3);
  EXPECT_EQ(first_fit_count(std::vector<int64_t>{10, 10, 1}, 10), 3);
  EXPECT_EQ(first_fit_count(std::vector<int64_t>{2, 2, 3, 3, 5, 2}, 6), 3);
}

TEST(FirstFit, an_oversized_item_takes_its_own_bin) {
  EXPECT_EQ(first_fit_count(std::vector<int64_t>{11, 1}, 10), 2);
}

}  // namespace
}  // namespace ringfold
