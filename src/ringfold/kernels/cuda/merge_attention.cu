#include "ringfold/kernels/cuda/device.cuh"

namespace ringfold::cuda {
namespace {

constexpr int kThreads = 256;

// A head's threads lie in one warp (head_dim / 8 divides 32), so all of them read the old lse before one writes the
// new.
template <typename T>
__global__ __launch_bounds__(kThreads) void ringfold_merge_attention(MergeAttention p) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  const bool inside = i < p.tokens * p.heads * p.head_dim;
  const int64_t head = inside ? i / p.head_dim : 0;
  const float old_lse = p.lse[head], part_lse = p.part_lse[head];
  __syncwarp();
  // No key in the part: nothing changes.
  if (!inside || part_lse == -INFINITY) return;
  const float largest = fmaxf(old_lse, part_lse);
  const float lse = largest + logf(expf(old_lse - largest) + expf(part_lse - largest));
  const float old_weight = expf(old_lse - lse), part_weight = expf(part_lse - lse);
  float out[8], part[8];
  load8(p.out + i, out);
  load8(static_cast<const T*>(p.part_out) + i, part);
#pragma unroll
  for (int e = 0; e < 8; ++e) out[e] = out[e] * old_weight + part[e] * part_weight;
  store8(p.out + i, out);
  if (i % p.head_dim == 0) p.lse[head] = lse;
}

}  // namespace

void merge_attention(Type type, const MergeAttention& p, cudaStream_t stream) {
  const int64_t vectors = p.tokens * p.heads * p.head_dim / kVector;
  if (vectors == 0) return;
  const auto blocks = static_cast<unsigned>((vectors + kThreads - 1) / kThreads);
  by_type(type, [&](auto t) { ringfold_merge_attention<decltype(t)><<<blocks, kThreads, 0, stream>>>(p); });
  check_launch("merge_attention");
}

}  // namespace ringfold::cuda
