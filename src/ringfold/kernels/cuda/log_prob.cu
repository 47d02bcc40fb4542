// One block a row of logits. The forward reads the row once: each thread keeps a running maximum m, s = sum exp(x - m)
// and u = sum exp(x - m) (x - m); when m grows by d, s becomes s e^-d and u becomes (u - d s) e^-d.
#include "ringfold/kernels/cuda/device.cuh"

namespace ringfold::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;

struct Sums {
  float m = -INFINITY, s = 0, u = 0;
};

__device__ inline Sums merged(const Sums& a, const Sums& b) {
  Sums r;
  r.m = fmaxf(a.m, b.m);
  if (r.m == -INFINITY) return r;
  const float da = r.m - a.m, db = r.m - b.m;
  // An empty side has s = u = 0 and an infinite difference.
  const float ea = a.s == 0 ? 0 : __expf(-da), eb = b.s == 0 ? 0 : __expf(-db);
  r.s = a.s * ea + b.s * eb;
  r.u = (a.s == 0 ? 0 : (a.u - da * a.s) * ea) + (b.s == 0 ? 0 : (b.u - db * b.s) * eb);
  return r;
}

template <int kCount>
__device__ inline void take(Sums& sums, const float (&x)[kCount]) {
  float largest = x[0];
#pragma unroll
  for (int e = 1; e < kCount; ++e) largest = fmaxf(largest, x[e]);
  if (largest > sums.m) {
    if (sums.s != 0) {
      const float d = largest - sums.m, scale = __expf(-d);
      sums.u = (sums.u - d * sums.s) * scale;
      sums.s *= scale;
    }
    sums.m = largest;
  }
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    const float d = x[e] - sums.m, w = __expf(d);
    sums.s += w;
    sums.u += w * d;
  }
}

__device__ inline Sums warp_merged(Sums sums) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const Sums other{__shfl_xor_sync(0xffffffffU, sums.m, step), __shfl_xor_sync(0xffffffffU, sums.s, step),
                     __shfl_xor_sync(0xffffffffU, sums.u, step)};
    sums = merged(sums, other);
  }
  return sums;
}

template <bool kAligned>
__global__ __launch_bounds__(kThreads) void ringfold_log_prob(LogProb p) {
  __shared__ Sums shared[kWarps];
  const int64_t row = blockIdx.x;
  const float* logits = p.logits + row * p.vocabulary;
  const float scale = p.inverse_temperature;
  Sums sums;
  if constexpr (kAligned) {
    for (int64_t i = threadIdx.x * 4; i < p.vocabulary; i += kThreads * 4) {
      const float4 v = *reinterpret_cast<const float4*>(logits + i);
      const float x[4] = {v.x * scale, v.y * scale, v.z * scale, v.w * scale};
      take(sums, x);
    }
  } else {
    for (int64_t i = threadIdx.x; i < p.vocabulary; i += kThreads) {
      const float x[1] = {logits[i] * scale};
      take(sums, x);
    }
  }
  sums = warp_merged(sums);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sums;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kWarps; ++warp) sums = merged(sums, shared[warp]);
  const float target = logits[p.target[row]] * scale, log_s = logf(sums.s);
  p.lse[row] = sums.m + log_s;
  p.log_prob[row] = target - sums.m - log_s;
  p.entropy[row] = log_s - sums.u / sums.s;
  p.greedy[row] = target == sums.m;
}

// d logits = [dlog_prob (onehot - p) - dentropy p (log p + entropy)] / temperature, written over the logits: a row of
// bf16 takes the first half of its row of floats. A round of the block reads no earlier than it writes, and all its
// reads are done before the first write.
template <typename T, int kCount>
__global__ __launch_bounds__(kThreads) void ringfold_log_prob_backward(LogProbBackward p) {
  const int64_t row = blockIdx.x, target = p.target[row];
  const float* logits = p.logits + row * p.vocabulary;
  T* dlogits = reinterpret_cast<T*>(p.logits + row * p.vocabulary);
  const float lse = p.lse[row], scale = p.inverse_temperature;
  const float dlog_prob = p.dlog_prob == nullptr ? 0 : p.dlog_prob[row];
  const float dentropy = p.dentropy == nullptr ? 0 : p.dentropy[row];
  const float entropy = p.entropy[row];
  for (int64_t round = 0; round < p.vocabulary; round += kThreads * kCount) {
    const int64_t i = round + threadIdx.x * kCount;
    const bool inside = i < p.vocabulary;
    float x[kCount] = {};
    if constexpr (kCount == 8) {
      if (inside) load8(logits + i, x);
    } else {
      if (inside) x[0] = logits[i];
    }
    __syncthreads();
    if (!inside) continue;
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const float log_p = x[e] * scale - lse, prob = __expf(log_p);
      float d = -prob * (dlog_prob + dentropy * (log_p + entropy));
      if (i + e == target) d += dlog_prob;
      x[e] = d * scale;
    }
    if constexpr (kCount == 8) {
      store8(dlogits + i, x);
    } else {
      dlogits[i] = from_float<T>(x[0]);
    }
  }
}

}  // namespace

void log_prob_forward(const LogProb& p, cudaStream_t stream) {
  if (p.rows == 0) return;
  const auto rows = static_cast<unsigned>(p.rows);
  if (p.vocabulary % 4 == 0) {
    ringfold_log_prob<true><<<rows, kThreads, 0, stream>>>(p);
  } else {
    ringfold_log_prob<false><<<rows, kThreads, 0, stream>>>(p);
  }
  check_launch("log_prob");
}

void log_prob_backward(Type type, const LogProbBackward& p, cudaStream_t stream) {
  if (p.rows == 0) return;
  const auto rows = static_cast<unsigned>(p.rows);
  by_type(type, [&](auto t) {
    if (p.vocabulary % 8 == 0) {
      ringfold_log_prob_backward<decltype(t), 8><<<rows, kThreads, 0, stream>>>(p);
    } else {
      ringfold_log_prob_backward<decltype(t), 1><<<rows, kThreads, 0, stream>>>(p);
    }
  });
  check_launch("log_prob_backward");
}

}  // namespace ringfold::cuda
