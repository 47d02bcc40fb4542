// From full samples to the rows of one rank, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "ringfold/shard/pack_layout.h"

namespace ringfold {

// Per-token values of one full sample -> local rows. `full[s]` has real_tokens(s) entries; pad rows get `pad`.
std::vector<int64_t> split_i64(const PackLayout& layout, std::span<const std::span<const int64_t>> full, int64_t pad);
std::vector<double> split_f64(const PackLayout& layout, std::span<const std::span<const double>> full, double pad);

// Next-token targets of full samples, shifted on the full sequence and cut at its end, then sharded: the target of a
// row is the next token of its own sample; kNoTarget for a sample's last token and for pad rows.
inline constexpr int64_t kNoTarget = -1;
std::vector<int64_t> split_targets(const PackLayout& layout, std::span<const std::span<const int64_t>> full_tokens);

// Where local rows lie in the full samples: entry row -> (sample in pack, position), position -1 for pad rows.
struct RowOrigin {
  int32_t sample = 0;
  int32_t position = -1;
};
std::vector<RowOrigin> row_origins(const PackLayout& layout);

// Where the real tokens of the pack lie once the rows of all ranks are put one after another, rank 0 first: entry i is
// the row of real token i, sample after sample in the order of their positions. The same on every rank.
std::vector<int64_t> rows_in_sequence(const PackLayout& layout);

}  // namespace ringfold
