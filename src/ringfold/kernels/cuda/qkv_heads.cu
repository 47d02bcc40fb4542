// kLanes = head_dim / 16 neighbouring lanes of a warp hold one head: each has 8 elements of the first half and their
// rotation partners in the second, loaded 16 bytes at a time, so that norm and rotation stay inside the lanes. In the
// forward they take kRun neighbouring heads of one token, which share its rotation.
#include "ringfold/kernels/cuda/device.cuh"

namespace ringfold::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPartialRows = 264;  // blocks of the backward: two on each of the 132 multiprocessors
constexpr int kRun = 2;

struct Head {
  float first[8], second[8];
};

template <int kLanes>
__device__ inline int lane_of() {
  return static_cast<int>(threadIdx.x) % kLanes;
}

template <int kLanes, typename T>
__device__ inline Head load_head(const T* head) {
  Head x;
  load8(head + lane_of<kLanes>() * 8, x.first);
  load8(head + (kLanes + lane_of<kLanes>()) * 8, x.second);
  return x;
}

template <int kLanes, typename T>
__device__ inline void store_head(T* head, const Head& x) {
  store8(head + lane_of<kLanes>() * 8, x.first);
  store8(head + (kLanes + lane_of<kLanes>()) * 8, x.second);
}

// Sum over the lanes of a head. Other heads of the warp may be elsewhere in the code.
template <int kLanes>
__device__ inline float head_sum(float x) {
  const unsigned mask = (0xffffffffU >> (32 - kLanes)) << (threadIdx.x % 32 / kLanes * kLanes);
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(mask, x, step);
  return x;
}

template <int kLanes>
__device__ inline float inverse_rms_of(const Head& x, float eps) {
  float squares = 0;
#pragma unroll
  for (int e = 0; e < 8; ++e) squares += x.first[e] * x.first[e] + x.second[e] * x.second[e];
  return rsqrtf(head_sum<kLanes>(squares) / (16.0F * kLanes) + eps);
}

// Which head of the row: 0 .. heads-1 of q, then those of k, then those of v.
enum class Part { kQ, kK, kV };
struct Place {
  Part part;
  int head;   // inside its part
  int heads;  // of its part
};
template <typename Params>
__device__ inline Place place_of(const Params& p, int head) {
  const int heads = static_cast<int>(p.heads), kv_heads = static_cast<int>(p.kv_heads);
  if (head < heads) return {Part::kQ, head, heads};
  if (head < heads + kv_heads) return {Part::kK, head - heads, kv_heads};
  return {Part::kV, head - heads - kv_heads, kv_heads};
}

// The runs of heads of a token.
__host__ __device__ inline int runs_of(const QkvHeads& p) {
  return (static_cast<int>(p.heads + 2 * p.kv_heads) + kRun - 1) / kRun;
}

template <typename T, int kLanes>
__global__ __launch_bounds__(kThreads) void ringfold_qkv_heads(QkvHeads p) {
  constexpr int kDim = 16 * kLanes, kGroups = kThreads / kLanes;
  const int row_heads = static_cast<int>(p.heads + 2 * p.kv_heads), runs = runs_of(p);
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kGroups + threadIdx.x / kLanes;
  if (item >= p.tokens * runs) return;
  const int64_t token = item / runs;
  const int begin = static_cast<int>(item - token * runs) * kRun;
  const T* row = static_cast<const T*>(p.qkv) + token * row_heads * kDim;
  Head heads[kRun];  // all on their way before the first is used
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    if (begin + i < row_heads) heads[i] = load_head<kLanes>(row + (begin + i) * kDim);
  }
  float cos[8], sin[8];
  load8(p.cos + token * kDim + lane_of<kLanes>() * 8, cos);
  load8(p.sin + token * kDim + lane_of<kLanes>() * 8, sin);
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const int head = begin + i;
    if (head >= row_heads) return;
    const Place place = place_of(p, head);
    Head& x = heads[i];
    void* out = place.part == Part::kQ ? p.q : place.part == Part::kK ? p.k : p.v;
    int64_t out_row = token * place.heads + place.head;
    if (place.part != Part::kQ && p.kv_row != nullptr) {
      if (p.kv_row[token] < 0) continue;
      out_row = p.kv_row[token] + place.head * p.kv_head_rows;
    }
    T* to = static_cast<T*>(out) + out_row * kDim;
    if (place.part == Part::kV) {
      store_head<kLanes>(to, x);
      continue;
    }
    const T* weight = static_cast<const T*>(place.part == Part::kQ ? p.q_weight : p.k_weight);
    if (weight != nullptr) {
      const float inverse_rms = inverse_rms_of<kLanes>(x, p.eps);
      const Head w = load_head<kLanes>(weight);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        x.first[e] *= inverse_rms * w.first[e];
        x.second[e] *= inverse_rms * w.second[e];
      }
    }
    Head y;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      y.first[e] = x.first[e] * cos[e] - x.second[e] * sin[e];
      y.second[e] = x.second[e] * cos[e] + x.first[e] * sin[e];
    }
    store_head<kLanes>(to, y);
  }
}

// Adds up the groups of the block, in their order.
template <int kLanes>
__device__ inline void add_partial(const Head& mine, float* shared, float* partial) {
  constexpr int kDim = 16 * kLanes;
  store_head<kLanes>(shared + threadIdx.x / kLanes * kDim, mine);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kDim; i += kThreads) {
    float sum = 0;
    for (int group = 0; group < kThreads / kLanes; ++group) sum += shared[group * kDim + i];
    partial[static_cast<int64_t>(blockIdx.x) * kDim + i] = sum;
  }
  __syncthreads();
}

// The gradient through the norm of head n; g comes in as the gradient of its result.
template <int kLanes, typename T>
__device__ inline void norm_backward(Head& n, const T* weight, float eps, Head& g, Head& dweight) {
  const Head w = load_head<kLanes>(weight);
  const float inverse_rms = inverse_rms_of<kLanes>(n, eps);
  float along = 0;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    n.first[e] *= inverse_rms;
    n.second[e] *= inverse_rms;
    dweight.first[e] += g.first[e] * n.first[e];
    dweight.second[e] += g.second[e] * n.second[e];
    g.first[e] *= w.first[e];
    g.second[e] *= w.second[e];
    along += g.first[e] * n.first[e] + g.second[e] * n.second[e];
  }
  along = head_sum<kLanes>(along) / (16.0F * kLanes);
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    g.first[e] = (g.first[e] - n.first[e] * along) * inverse_rms;
    g.second[e] = (g.second[e] - n.second[e] * along) * inverse_rms;
  }
}

template <typename T, int kLanes>
__global__ __launch_bounds__(kThreads, 2) void ringfold_qkv_heads_backward(QkvHeadsBackward p) {
  constexpr int kDim = 16 * kLanes, kGroups = kThreads / kLanes;
  __shared__ alignas(16) float shared[kGroups * kDim];
  const int row_heads = static_cast<int>(p.heads + 2 * p.kv_heads);
  Head dq_weight = {}, dk_weight = {};
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kGroups;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kGroups + threadIdx.x / kLanes; item < p.tokens * row_heads;
       item += stride) {
    const int64_t token = item / row_heads;
    const Place place = place_of(p, static_cast<int>(item - token * row_heads));
    const void* in = place.part == Part::kQ ? p.dq : place.part == Part::kK ? p.dk : p.dv;
    const Head dy = load_head<kLanes>(static_cast<const T*>(in) + (token * place.heads + place.head) * kDim);
    T* to = static_cast<T*>(p.dqkv) + item * kDim;
    if (place.part == Part::kV) {
      store_head<kLanes>(to, dy);
      continue;
    }
    Head x;
    if (p.q_weight != nullptr) x = load_head<kLanes>(static_cast<const T*>(p.qkv) + item * kDim);
    float cos[8], sin[8];
    load8(p.cos + token * kDim + lane_of<kLanes>() * 8, cos);
    load8(p.sin + token * kDim + lane_of<kLanes>() * 8, sin);
    Head g;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      g.first[e] = dy.first[e] * cos[e] + dy.second[e] * sin[e];
      g.second[e] = dy.second[e] * cos[e] - dy.first[e] * sin[e];
    }
    if (p.q_weight != nullptr) {
      // Both branches spelled out: an index that the compiler does not know would move the sums out of registers.
      if (place.part == Part::kQ) {
        norm_backward<kLanes>(x, static_cast<const T*>(p.q_weight), p.eps, g, dq_weight);
      } else {
        norm_backward<kLanes>(x, static_cast<const T*>(p.k_weight), p.eps, g, dk_weight);
      }
    }
    store_head<kLanes>(to, g);
  }
  if (p.q_weight == nullptr) return;
  add_partial<kLanes>(dq_weight, shared, p.dq_weight_partial);
  add_partial<kLanes>(dk_weight, shared, p.dk_weight_partial);
}

template <typename Call>
void by_head_dim(int64_t head_dim, Call call) {
  if (head_dim == 64) return call(std::integral_constant<int, 4>{});
  if (head_dim == 128) return call(std::integral_constant<int, 8>{});
  if (head_dim == 256) return call(std::integral_constant<int, 16>{});
  throw std::runtime_error("CUDA: qkv_heads: head dim is not 64, 128 or 256");
}

}  // namespace

void qkv_heads_forward(Type type, const QkvHeads& p, cudaStream_t stream) {
  const int64_t items = p.tokens * runs_of(p);
  if (items == 0) return;
  by_type(type, [&](auto t) {
    by_head_dim(p.head_dim, [&](auto lanes) {
      constexpr int kLanes = decltype(lanes)::value, kGroups = kThreads / kLanes;
      const auto blocks = static_cast<unsigned>((items + kGroups - 1) / kGroups);
      ringfold_qkv_heads<decltype(t), kLanes><<<blocks, kThreads, 0, stream>>>(p);
    });
  });
  check_launch("qkv_heads");
}

int64_t qkv_partial_rows() {
  return kPartialRows;
}

void qkv_heads_backward(Type type, const QkvHeadsBackward& p, cudaStream_t stream) {
  by_type(type, [&](auto t) {
    by_head_dim(p.head_dim, [&](auto lanes) {
      ringfold_qkv_heads_backward<decltype(t), decltype(lanes)::value><<<kPartialRows, kThreads, 0, stream>>>(p);
    });
  });
  check_launch("qkv_heads_backward");
}

}  // namespace ringfold::cuda
