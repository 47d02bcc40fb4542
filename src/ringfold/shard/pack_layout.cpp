#include "ringfold/shard/pack_layout.h"

#include <limits>

#include "ringfold/base/error.h"
#include "ringfold/base/pow2.h"
#include "ringfold/plan/plan.h"

namespace ringfold {

PackLayout::PackLayout(std::span<const int64_t> real_lengths, int size, int index) : size_(size), index_(index) {
  RINGFOLD_ASSERT(is_power_of_2(size) && index >= 0 && index < size,
                  "a pack needs a power-of-two group and a rank in it");
  cu_real_ = cu_padded_ = cu_local_ = {0};
  for (int64_t length : real_lengths) {
    RINGFOLD_ASSERT(length >= 1, "a sample has at least one token");
    SampleShard shard;
    shard.real_tokens = length;
    shard.padded_tokens = padded_length(length, CpSize(size));
    shard.chunk_tokens = size == 1 ? length : shard.padded_tokens / (2 * size);
    shard.local_begin = local_tokens_;
    shard.local_tokens = shard.padded_tokens / size;
    samples_.push_back(shard);

    real_tokens_ += shard.real_tokens;
    padded_tokens_ += shard.padded_tokens;
    local_tokens_ += shard.local_tokens;
    RINGFOLD_ASSERT(padded_tokens_ <= std::numeric_limits<int32_t>::max(), "a pack's boundaries fit into 32 bits");
    cu_real_.push_back(static_cast<int32_t>(real_tokens_));
    cu_padded_.push_back(static_cast<int32_t>(padded_tokens_));
    cu_local_.push_back(static_cast<int32_t>(local_tokens_));
  }

  positions_.reserve(local_tokens_);
  is_real_.reserve(local_tokens_);
  for (const SampleShard& shard : samples_) {
    for (int64_t row = 0; row < shard.local_tokens; ++row) {
      const bool in_first = row < shard.chunk_tokens;
      const int64_t chunk = in_first ? first_chunk(index) : second_chunk(index, size);
      const int64_t position = chunk * shard.chunk_tokens + (in_first ? row : row - shard.chunk_tokens);
      positions_.push_back(position);
      is_real_.push_back(position < shard.real_tokens);
    }
  }
}

}  // namespace ringfold
