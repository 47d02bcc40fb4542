#include "ringfold/shard/split.h"

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

template <typename T>
std::vector<T> split(const PackLayout& layout, std::span<const std::span<const T>> full, T pad) {
  RINGFOLD_ASSERT(full.size() == layout.samples().size(), "one span a sample of the pack");
  for (size_t s = 0; s < full.size(); ++s) {
    RINGFOLD_ASSERT(static_cast<int64_t>(full[s].size()) == layout.samples()[s].real_tokens, "one value a real token");
  }
  std::vector<T> local;
  local.reserve(layout.local_tokens());
  for (const RowOrigin& origin : row_origins(layout)) {
    local.push_back(origin.position < 0 ? pad : full[origin.sample][origin.position]);
  }
  return local;
}

}  // namespace

std::vector<RowOrigin> row_origins(const PackLayout& layout) {
  std::vector<RowOrigin> origins;
  origins.reserve(layout.local_tokens());
  for (size_t s = 0; s < layout.samples().size(); ++s) {
    const SampleShard& shard = layout.samples()[s];
    for (int64_t row = shard.local_begin; row < shard.local_begin + shard.local_tokens; ++row) {
      const int64_t position = layout.is_real()[row] ? layout.positions()[row] : -1;
      origins.push_back({static_cast<int32_t>(s), static_cast<int32_t>(position)});
    }
  }
  return origins;
}

std::vector<int64_t> rows_in_sequence(const PackLayout& layout) {
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(layout.real_tokens()));
  const int64_t size = layout.size();
  for (const SampleShard& shard : layout.samples()) {
    for (int64_t chunk = 0; chunk < 2 * size; ++chunk) {
      const bool first = chunk < size;
      const int64_t rank = first ? chunk : 2 * size - 1 - chunk;
      const int64_t begin = rank * layout.local_tokens() + shard.local_begin + (first ? 0 : shard.chunk_tokens);
      for (int64_t i = 0; i < shard.real_in_chunk(chunk); ++i) rows.push_back(begin + i);
    }
  }
  return rows;
}

std::vector<int64_t> split_i64(const PackLayout& layout, std::span<const std::span<const int64_t>> full, int64_t pad) {
  return split<int64_t>(layout, full, pad);
}

std::vector<double> split_f64(const PackLayout& layout, std::span<const std::span<const double>> full, double pad) {
  return split<double>(layout, full, pad);
}

std::vector<int64_t> split_targets(const PackLayout& layout, std::span<const std::span<const int64_t>> full_tokens) {
  RINGFOLD_ASSERT(full_tokens.size() == layout.samples().size(), "one span a sample of the pack");
  // The target of a row is often on another rank: look it up in the full sample, never in the shard.
  std::vector<int64_t> targets;
  targets.reserve(layout.local_tokens());
  for (const RowOrigin& origin : row_origins(layout)) {
    const SampleShard& shard = layout.samples()[origin.sample];
    const bool has_next = origin.position >= 0 && origin.position + 1 < shard.real_tokens;
    targets.push_back(has_next ? full_tokens[origin.sample][origin.position + 1] : kNoTarget);
  }
  return targets;
}

}  // namespace ringfold
