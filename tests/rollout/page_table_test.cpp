// Pages of a cache, against a plain account of who owns what.
#include "ringfold/rollout/page_table.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

namespace ringfold {
namespace {

TEST(PageTable, gives_every_token_of_every_sequence_a_place_of_its_own) {
  constexpr int64_t kPage = 4, kPages = 40, kSequences = 6, kMost = 9;
  PageTable table({kPages, kPage, kSequences, kMost});
  struct Sequence {
    int64_t tokens, most;
    std::vector<int64_t> places;  // by position
  };
  std::vector<Sequence> expected;
  std::mt19937 random(7);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  int64_t added = 0, refused = 0;
  for (int round = 0; round < 2000; ++round) {
    const int64_t most = draw(2, kPage * kMost), tokens = draw(1, most - 1);
    int64_t used = 0;
    for (const Sequence& s : expected) used += (s.most + kPage - 1) / kPage;
    const bool room = static_cast<int64_t>(expected.size()) < kSequences && used + (most + kPage - 1) / kPage <= kPages;
    ASSERT_EQ(table.fits(most, 1), room);
    if (room) {
      expected.push_back({tokens, most, table.add(tokens, most)});
      ASSERT_EQ(expected.back().places.size(), static_cast<size_t>(tokens));
    }
    ++(room ? added : refused);
    const int64_t rows = table.sequences() + draw(0, 3);
    const PageStep step = table.grow(rows);
    ASSERT_EQ(step.length.size(), static_cast<size_t>(rows));
    ASSERT_EQ(step.work_begin.front(), 0);
    for (size_t i = 0; i < step.length.size(); ++i) {
      const int64_t pages = step.work_begin[i + 1] - step.work_begin[i];
      if (i >= expected.size()) {
        EXPECT_EQ(step.length[i], 0);
        EXPECT_EQ(step.token[i], -1);
        EXPECT_EQ(pages, 0);
        continue;
      }
      Sequence& s = expected[i];
      EXPECT_EQ(step.position[i], s.tokens);
      EXPECT_EQ(step.length[i], ++s.tokens);
      s.places.push_back(step.token[i]);
      EXPECT_EQ(pages, (s.tokens + kPage - 1) / kPage);
      for (int64_t position = 0; position < s.tokens; ++position) {
        const int32_t page = table.table()[static_cast<size_t>(step.slot[i] * kMost + position / kPage)];
        ASSERT_EQ(s.places[static_cast<size_t>(position)], page * kPage + position % kPage);
      }
    }
    std::set<int64_t> places;
    size_t count = 0;
    for (const Sequence& s : expected) {
      places.insert(s.places.begin(), s.places.end());
      count += s.places.size();
    }
    ASSERT_EQ(places.size(), count) << "no place belongs to two";
    std::vector<int64_t> kept;
    std::vector<Sequence> left;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i].tokens == expected[i].most || draw(0, 9) == 0) continue;
      kept.push_back(static_cast<int64_t>(i));
      left.push_back(std::move(expected[i]));
    }
    expected = std::move(left);
    table.keep(kept);
    ASSERT_EQ(table.sequences(), static_cast<int64_t>(expected.size()));
  }
  EXPECT_GT(added, 100);
  EXPECT_GT(refused, 100);
}

TEST(PageTable, knows_what_fits) {
  PageTable table({10, 256, 3, 4});
  EXPECT_TRUE(table.fits(1024, 2));
  EXPECT_FALSE(table.fits(1025, 1)) << "more pages than a sequence has";
  EXPECT_FALSE(table.fits(1024, 3)) << "more pages than there are";
  EXPECT_TRUE(table.fits(768, 3));
  EXPECT_FALSE(table.fits(1, 4)) << "more sequences than there are rows";
  table.add(700, 1024);
  EXPECT_TRUE(table.fits(768, 2));
  EXPECT_FALSE(table.fits(1024, 2));
  table.keep({});
  EXPECT_TRUE(table.fits(1024, 2));
}

}  // namespace
}  // namespace ringfold
