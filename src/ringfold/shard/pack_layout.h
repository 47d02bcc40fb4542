// How one pack lies on the ranks of its group. Each sample is padded to a multiple of 2c and cut into 2c chunks; group
// rank r owns chunks r and 2c-1-r (zigzag: equal causal attention work). Local row order: per sample, chunk r then
// chunk 2c-1-r. Hence the real rows of a sample are a prefix of its local rows: a pad in chunk r means that chunk
// 2c-1-r holds pads only. c = 1 has no padding. Pure host metadata.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace ringfold {

struct SampleShard {
  int64_t real_tokens = 0;    // L
  int64_t padded_tokens = 0;  // padded(L, c)
  int64_t chunk_tokens = 0;   // padded / 2c; for c = 1 the whole sample is one chunk of `padded_tokens`
  int64_t local_begin = 0;    // first local row of the sample on every rank
  int64_t local_tokens = 0;   // padded / c

  // Real tokens of chunk 0 .. 2c-1. Pads lie at the sample's end, so the real rows of a chunk are its first ones.
  int64_t real_in_chunk(int64_t chunk) const {
    return std::clamp<int64_t>(real_tokens - chunk * chunk_tokens, 0, chunk_tokens);
  }
};

class PackLayout {
 public:
  // Real lengths (>= 1) in pack order; group size c (power of two) and own index.
  PackLayout(std::span<const int64_t> real_lengths, int size, int index);

  int size() const { return size_; }
  int index() const { return index_; }
  const std::vector<SampleShard>& samples() const { return samples_; }
  // The two chunks of a group rank, in its local row order; for c = 1 the second one is empty.
  static int64_t first_chunk(int rank) { return rank; }
  static int64_t second_chunk(int rank, int size) { return 2 * int64_t{size} - 1 - rank; }

  int64_t local_tokens() const { return local_tokens_; }    // rows on this rank
  int64_t padded_tokens() const { return padded_tokens_; }  // of the whole pack, all ranks
  int64_t real_tokens() const { return real_tokens_; }      // of the whole pack

  // cu_seqlens, n + 1 entries each, kept apart: real and padded boundaries of the full pack; padded boundaries local.
  const std::vector<int32_t>& cu_real() const { return cu_real_; }
  const std::vector<int32_t>& cu_padded() const { return cu_padded_; }
  const std::vector<int32_t>& cu_local() const { return cu_local_; }

  // For each local row: position inside its own sample (restarts at 0), also for pad rows.
  const std::vector<int64_t>& positions() const { return positions_; }
  // For each local row: whether it holds a real token.
  const std::vector<uint8_t>& is_real() const { return is_real_; }
  bool has_padding() const { return real_tokens_ != padded_tokens_; }

 private:
  int size_, index_;
  int64_t local_tokens_ = 0, padded_tokens_ = 0, real_tokens_ = 0;
  std::vector<SampleShard> samples_;
  std::vector<int32_t> cu_real_, cu_padded_, cu_local_;
  std::vector<int64_t> positions_;
  std::vector<uint8_t> is_real_;
};

}  // namespace ringfold
