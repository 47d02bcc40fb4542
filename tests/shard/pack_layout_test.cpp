#include "ringfold/shard/pack_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "ringfold/shard/split.h"

namespace ringfold {
namespace {

using Lengths = std::vector<int64_t>;

// Tokens of sample s are 1000 s, 1000 s + 1, ...
std::vector<std::vector<int64_t>> numbered_samples(const Lengths& lengths) {
  std::vector<std::vector<int64_t>> samples;
  for (size_t s = 0; s < lengths.size(); ++s) {
    samples.emplace_back();
    for (int64_t i = 0; i < lengths[s]; ++i) samples.back().push_back(1000 * static_cast<int64_t>(s) + i);
  }
  return samples;
}

std::vector<std::span<const int64_t>> spans_of(const std::vector<std::vector<int64_t>>& samples) {
  return {samples.begin(), samples.end()};
}

// Case N7: targets are shifted on the full sequence, then sharded.
TEST(PackLayout, shards_tokens_and_targets_in_zigzag) {
  std::vector<std::vector<int64_t>> samples = {{0, 1, 2, 3, 4, 5, 6, 7}};
  const PackLayout rank0(Lengths{8}, 2, 0), rank1(Lengths{8}, 2, 1);
  EXPECT_EQ(split_i64(rank0, spans_of(samples), -9), (Lengths{0, 1, 6, 7}));
  EXPECT_EQ(split_targets(rank0, spans_of(samples)), (Lengths{1, 2, 7, kNoTarget}));
  EXPECT_EQ(split_i64(rank1, spans_of(samples), -9), (Lengths{2, 3, 4, 5}));
  EXPECT_EQ(split_targets(rank1, spans_of(samples)), (Lengths{3, 4, 5, 6}));
}

// Case N7, second half: the last token of a sample never predicts the next sample's first token.
TEST(PackLayout, cuts_targets_at_sample_ends) {
  for (int c : {1, 2, 4}) {
    const Lengths lengths = {5, 3, 1};
    const auto samples = numbered_samples(lengths);
    int without_target = 0;
    for (int rank = 0; rank < c; ++rank) {
      const PackLayout layout(lengths, c, rank);
      const auto tokens = split_i64(layout, spans_of(samples), -9);
      const auto targets = split_targets(layout, spans_of(samples));
      for (size_t row = 0; row < tokens.size(); ++row) {
        if (!layout.is_real()[row]) {
          EXPECT_EQ(tokens[row], -9);
          EXPECT_EQ(targets[row], kNoTarget);
        } else if (targets[row] == kNoTarget) {
          ++without_target;
          EXPECT_TRUE(tokens[row] == 4 || tokens[row] == 1002 || tokens[row] == 2000) << tokens[row];
        } else {
          EXPECT_EQ(targets[row], tokens[row] + 1);
        }
      }
    }
    EXPECT_EQ(without_target, 3) << "c = " << c;
  }
}

// Case N8: positions restart in each sample, and a per-token table is read at the sample's own offset.
TEST(PackLayout, restarts_positions_in_each_sample) {
  const Lengths lengths = {4, 4};
  const std::vector<Lengths> positions = {{0, 3, 0, 3}, {1, 2, 1, 2}};
  const std::vector<Lengths> table_rows = {{0, 3, 4, 7}, {1, 2, 5, 6}};
  for (int rank = 0; rank < 2; ++rank) {
    const PackLayout layout(lengths, 2, rank);
    EXPECT_EQ(layout.positions(), positions[rank]);
    Lengths rows;
    for (const RowOrigin& origin : row_origins(layout))
      rows.push_back(layout.cu_real()[origin.sample] + origin.position);
    EXPECT_EQ(rows, table_rows[rank]);
  }
}

// Case N1: lengths that are no multiple of 2c are padded up, none of their tokens falls out.
TEST(PackLayout, pads_to_a_multiple_of_two_c) {
  const PackLayout seven(Lengths{7}, 2, 0);
  EXPECT_EQ(seven.padded_tokens(), 8);
  EXPECT_EQ(seven.local_tokens(), 4);
  EXPECT_EQ(seven.positions(), (Lengths{0, 1, 6, 7}));
  EXPECT_EQ(seven.is_real(), (std::vector<uint8_t>{1, 1, 1, 0}));
  const PackLayout three_k(Lengths{2999}, 4, 3);
  EXPECT_EQ(three_k.padded_tokens(), 3000);
  EXPECT_EQ(three_k.local_tokens(), 750);
}

// Case M1: the load of a rank is tokens after the split.
TEST(PackLayout, counts_tokens_per_rank_after_the_split) {
  const PackLayout layout(Lengths{1800, 200}, 2, 0);
  EXPECT_EQ(layout.local_tokens(), 1000);
  EXPECT_EQ(layout.padded_tokens(), 2000);
  EXPECT_FALSE(layout.has_padding());
}

TEST(PackLayout, keeps_real_and_padded_boundaries_apart) {
  const PackLayout layout(Lengths{5, 8, 1}, 2, 1);
  EXPECT_EQ(layout.cu_real(), (std::vector<int32_t>{0, 5, 13, 14}));
  EXPECT_EQ(layout.cu_padded(), (std::vector<int32_t>{0, 8, 16, 20}));
  EXPECT_EQ(layout.cu_local(), (std::vector<int32_t>{0, 4, 8, 10}));
  EXPECT_EQ(layout.real_tokens(), 14);
  EXPECT_TRUE(layout.has_padding());
}

TEST(PackLayout, has_no_padding_in_a_group_of_one) {
  const PackLayout layout(Lengths{5, 1, 7}, 1, 0);
  EXPECT_FALSE(layout.has_padding());
  EXPECT_EQ(layout.local_tokens(), 13);
  EXPECT_EQ(layout.cu_local(), (std::vector<int32_t>{0, 5, 6, 13}));
  EXPECT_EQ(layout.positions(), (Lengths{0, 1, 2, 3, 4, 0, 0, 1, 2, 3, 4, 5, 6}));
}

TEST(PackLayout, of_no_samples_is_empty) {
  const PackLayout layout(Lengths{}, 4, 2);
  EXPECT_EQ(layout.local_tokens(), 0);
  EXPECT_EQ(layout.cu_real(), (std::vector<int32_t>{0}));
  EXPECT_TRUE(split_targets(layout, {}).empty());
}

// Every token on exactly one rank, equal loads, and real rows a prefix of each sample's rows.
TEST(PackLayout, places_every_token_exactly_once) {
  for (int c : {1, 2, 4, 8, 16}) {
    const Lengths lengths = {1, 2, 3, 2 * c - 1, 2 * c, 2 * c + 1, 4 * c + 1, 13, 97, 1009};
    std::set<std::pair<int, int>> seen;
    for (int rank = 0; rank < c; ++rank) {
      const PackLayout layout(lengths, c, rank);
      EXPECT_EQ(layout.local_tokens() * c, layout.padded_tokens());
      for (const RowOrigin& origin : row_origins(layout)) {
        if (origin.position < 0) continue;
        EXPECT_TRUE(seen.emplace(origin.sample, origin.position).second);
      }
      for (const SampleShard& shard : layout.samples()) {
        EXPECT_EQ(shard.padded_tokens % (c == 1 ? 1 : 2 * c), 0);
        const int64_t real =
            shard.real_in_chunk(PackLayout::first_chunk(rank)) + shard.real_in_chunk(PackLayout::second_chunk(rank, c));
        for (int64_t row = 0; row < shard.local_tokens; ++row) {
          EXPECT_EQ(layout.is_real()[shard.local_begin + row], row < real);
        }
      }
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), PackLayout(lengths, c, 0).real_tokens());
  }
}

TEST(PackLayout, splits_doubles_like_tokens) {
  const std::vector<double> values = {0.5, 1.5, 2.5};
  const std::vector<std::span<const double>> full = {values};
  EXPECT_EQ(split_f64(PackLayout(Lengths{3}, 2, 0), full, -1.0), (std::vector<double>{0.5, -1.0}));
  EXPECT_EQ(split_f64(PackLayout(Lengths{3}, 2, 1), full, -1.0), (std::vector<double>{1.5, 2.5}));
}

TEST(PackLayoutDeathTest, refuses_values_of_the_wrong_length) {
  const std::vector<double> values = {0.5, 1.5};
  const std::vector<std::span<const double>> full = {values};
  EXPECT_DEATH(split_f64(PackLayout(Lengths{3}, 2, 0), full, 0.0), "one value a real token");
  EXPECT_DEATH(PackLayout(Lengths{0}, 1, 0), "at least one token");
  EXPECT_DEATH(PackLayout(Lengths{3}, 3, 0), "power-of-two group");
}

TEST(PackLayout, finds_real_tokens_in_the_rows_of_all_ranks) {
  for (const Lengths& lengths : {Lengths{1}, Lengths{8}, Lengths{1, 2, 3, 17, 64, 5}}) {
    const auto samples = numbered_samples(lengths);
    std::vector<int64_t> in_order;
    for (const auto& sample : samples) in_order.insert(in_order.end(), sample.begin(), sample.end());
    for (int c = 1; c <= 8; c *= 2) {
      std::vector<int64_t> rows;
      for (int rank = 0; rank < c; ++rank) {
        const auto local = split_i64(PackLayout(lengths, c, rank), spans_of(samples), -9);
        rows.insert(rows.end(), local.begin(), local.end());
      }
      std::vector<int64_t> found;
      for (const int64_t row : rows_in_sequence(PackLayout(lengths, c, c - 1))) found.push_back(rows.at(row));
      EXPECT_EQ(found, in_order) << c;
    }
  }
}

}  // namespace
}  // namespace ringfold
