// A fixed grid and a fixed order: the same bits each time.
#include "ringfold/kernels/cuda/device.cuh"

namespace ringfold::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocks = 528;  // four on each of the 132 multiprocessors

__global__ __launch_bounds__(kThreads) void ringfold_sum_of_squares(SumOfSquares p) {
  __shared__ double shared[kThreads / 32];
  const int64_t stride = int64_t{kBlocks} * kThreads, quads = p.count / 4;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  double sum = 0;
  for (int64_t i = first; i < quads; i += stride) {
    const float4 x = reinterpret_cast<const float4*>(p.x)[i];
    // Products of two floats are exact in fp64.
    sum += static_cast<double>(x.x) * x.x + static_cast<double>(x.y) * x.y;
    sum += static_cast<double>(x.z) * x.z + static_cast<double>(x.w) * x.w;
  }
  for (int64_t i = quads * 4 + first; i < p.count; i += stride) sum += static_cast<double>(p.x[i]) * p.x[i];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, step);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) total += shared[i];
  p.partial[blockIdx.x] = total;
}

}  // namespace

int64_t sum_of_squares_blocks() {
  return kBlocks;
}

void sum_of_squares(const SumOfSquares& p, cudaStream_t stream) {
  ringfold_sum_of_squares<<<kBlocks, kThreads, 0, stream>>>(p);
  check_launch("sum_of_squares");
}

}  // namespace ringfold::cuda
