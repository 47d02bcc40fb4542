// One block a row: largest logit, sums over tiles, then a scan of the one tile in which the target falls. All orders
// are fixed: the same bits each time.
#include <climits>

#include "ringfold/kernels/cuda/decode.h"
#include "ringfold/kernels/cuda/device.cuh"

namespace ringfold::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kEach = 4;  // elements a thread has of a tile
constexpr int kTile = kThreads * kEach;
constexpr int kMaxTiles = 64;

struct Shared {
  float warp_sum[kMaxTiles][kWarps];
  double tile_sum[kMaxTiles];
  float top[kWarps], scan[kWarps];
  double total;
  float left;  // of the target, inside its tile
  int tile, chosen, last;
};

__device__ inline float block_max(float x, float* shared) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, step));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) x = fmaxf(x, shared[w]);
  return x;
}

// Thread 0: the tile in which uniform * total falls. Rounding may leave the target past the last one: then `left` is
// more than any tile has, and the last token of positive probability is drawn.
__device__ inline void find_tile(int tiles, double uniform, Shared& s) {
  double total = 0;
  for (int t = 0; t < tiles; ++t) total += s.tile_sum[t];
  double left = uniform * total;
  bool found = false;
  s.tile = 0;
  for (int t = 0; t < tiles && !found; ++t) {
    if (!(s.tile_sum[t] > 0)) continue;
    s.tile = t;
    found = left < s.tile_sum[t];
    if (!found) left -= s.tile_sum[t];
  }
  s.total = total;
  s.left = found ? static_cast<float>(left) : INFINITY;
  s.chosen = INT_MAX;
  s.last = 0;
}

// All threads: the first place of the tile whose cumulative sum is above `left`. x: the thread's elements, neighbours.
__device__ inline void choose(const float (&x)[kEach], int first, Shared& s) {
  float own = 0;
#pragma unroll
  for (float e : x) own += e;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float through = own;  // inclusive scan over the warp
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(0xffffffffU, through, step);
    if (lane >= step) through += other;
  }
  if (lane == 31) s.scan[warp] = through;
  float before = __shfl_up_sync(0xffffffffU, through, 1);
  if (lane == 0) before = 0;
  __syncthreads();
  float base = 0;
  for (int w = 0; w < warp; ++w) base += s.scan[w];
  int last = -1, chosen = -1;
  float running = base + before;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    running += x[e];
    if (x[e] > 0) last = first + e;
    if (chosen < 0 && x[e] > 0 && running > s.left) chosen = first + e;
  }
  // Where the scan's rounding passes the target and the running sum's does not.
  if (chosen < 0 && base + through > s.left) chosen = last;
  if (chosen >= 0) atomicMin(&s.chosen, chosen);
  if (last >= 0) atomicMax(&s.last, last);
}

__global__ __launch_bounds__(kThreads) void ringfold_draw(Draw p) {
  __shared__ Shared s;
  const int vocabulary = static_cast<int>(p.vocabulary), tiles = (vocabulary + kTile - 1) / kTile;
  const int thread = static_cast<int>(threadIdx.x);
  const float* logits = p.logits + static_cast<int64_t>(blockIdx.x) * p.vocabulary;
  float top = -INFINITY;
  for (int i = thread; i < vocabulary; i += kThreads) top = fmaxf(top, logits[i] * p.inverse_temperature);
  top = block_max(top, s.top);
  for (int tile = 0; tile < tiles; ++tile) {
    float sum = 0;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = tile * kTile + e * kThreads + thread;
      if (i < vocabulary) sum += expf(logits[i] * p.inverse_temperature - top);
    }
    sum = warp_sum(sum);
    if (thread % 32 == 0) s.warp_sum[tile][thread / 32] = sum;
  }
  __syncthreads();
  if (thread < tiles) {
    double sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += s.warp_sum[thread][w];
    s.tile_sum[thread] = sum;
  }
  __syncthreads();
  if (thread == 0) find_tile(tiles, p.uniform[blockIdx.x], s);
  __syncthreads();
  const int first = s.tile * kTile + thread * kEach;
  float x[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    x[e] = first + e < vocabulary ? expf(logits[first + e] * p.inverse_temperature - top) : 0.0F;
  }
  choose(x, first, s);
  __syncthreads();
  if (thread != 0) return;
  const int token = s.chosen == INT_MAX ? s.last : s.chosen;
  p.drawn[blockIdx.x] = token;
  p.drawn[p.rows + blockIdx.x] = static_cast<double>(logits[token] * p.inverse_temperature - top) - log(s.total);
}

}  // namespace

void draw(const Draw& p, cudaStream_t stream) {
  if (p.rows == 0) return;
  if (p.vocabulary > int64_t{kTile} * kMaxTiles) throw std::runtime_error("CUDA: draw: the vocabulary is too large");
  ringfold_draw<<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p);
  check_launch("draw");
}

}  // namespace ringfold::cuda
