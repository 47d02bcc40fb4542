#include "ringfold/data/order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

// Sebastiano Vigna's splitmix64.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // Uniform in 0 .. bound-1; draws in the incomplete last stretch of the range are thrown away.
  uint64_t below(uint64_t bound) {
    const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    uint64_t draw = next();
    while (draw >= limit) draw = next();
    return draw % bound;
  }

 private:
  uint64_t state_;
};

}  // namespace

std::vector<int64_t> sample_order(int64_t count, int64_t epoch, uint64_t seed, bool shuffle) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!shuffle) return order;
  // Mixed once more, so that (seed, epoch + 1) and (seed + 1, epoch) are not the same stream.
  SplitMix64 random(SplitMix64(seed).next() + static_cast<uint64_t>(epoch));
  for (size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[random.below(left)]);
  return order;
}

int64_t steps_per_epoch(int64_t count, int64_t global_batch_size) {
  return global_batch_size == 0 ? 1 : 1 + (count - 1) / global_batch_size;
}

GlobalBatch global_batch(int64_t count, int64_t global_batch_size, int64_t step, uint64_t seed, bool shuffle) {
  RINGFOLD_ASSERT(count >= 1 && step >= 1 && global_batch_size >= 0, "a batch of nothing");
  const int64_t per_epoch = steps_per_epoch(count, global_batch_size);
  const int64_t size = global_batch_size == 0 ? count : global_batch_size;
  GlobalBatch batch;
  batch.epoch = (step - 1) / per_epoch;
  const int64_t begin = (step - 1) % per_epoch * size;
  const int64_t end = std::min(count, begin + std::min(size, count));
  const std::vector<int64_t> order = sample_order(count, batch.epoch, seed, shuffle);
  batch.indices.assign(order.begin() + begin, order.begin() + end);
  batch.epochs_done = static_cast<double>(batch.epoch) + static_cast<double>(end) / static_cast<double>(count);
  return batch;
}

}  // namespace ringfold
