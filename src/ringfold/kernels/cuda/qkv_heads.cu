// One warp a few neighbouring heads of one token, which share its rotation. A lane holds the elements
// [lane * kHalf, + kHalf) of the head's first half and their rotation partners in the second, so that norm and rotation
// stay inside the warp.
#include "ringfold/kernels/cuda/device.cuh"

namespace ringfold::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kPartialRows = 396;  // blocks of the backward: three on each of the 132 multiprocessors
constexpr int kRun = 4;            // heads a warp takes of one token

// kHalf elements of a half, as one access.
template <typename T, int kHalf>
struct alignas(sizeof(T) * kHalf) Piece {
  T x[kHalf];
};

template <int kHalf>
struct Head {
  float first[kHalf], second[kHalf];
};

template <typename T, int kHalf>
__device__ inline Head<kHalf> load_head(const T* head) {
  const auto* pieces = reinterpret_cast<const Piece<T, kHalf>*>(head);
  const Piece<T, kHalf> first = pieces[threadIdx.x % 32], second = pieces[32 + threadIdx.x % 32];
  Head<kHalf> x;
#pragma unroll
  for (int e = 0; e < kHalf; ++e) {
    x.first[e] = to_float(first.x[e]);
    x.second[e] = to_float(second.x[e]);
  }
  return x;
}

template <typename T, int kHalf>
__device__ inline void store_head(T* head, const Head<kHalf>& x) {
  Piece<T, kHalf> first, second;
#pragma unroll
  for (int e = 0; e < kHalf; ++e) {
    first.x[e] = from_float<T>(x.first[e]);
    second.x[e] = from_float<T>(x.second[e]);
  }
  auto* pieces = reinterpret_cast<Piece<T, kHalf>*>(head);
  pieces[threadIdx.x % 32] = first;
  pieces[32 + threadIdx.x % 32] = second;
}

template <int kHalf>
__device__ inline float inverse_rms_of(const Head<kHalf>& x, float eps) {
  float squares = 0;
#pragma unroll
  for (int e = 0; e < kHalf; ++e) squares += x.first[e] * x.first[e] + x.second[e] * x.second[e];
  return rsqrtf(warp_sum(squares) / (64.0F * kHalf) + eps);
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

// The runs of heads, over all tokens.
template <typename Params>
__host__ __device__ inline int runs_of(const Params& p) {
  return (static_cast<int>(p.heads + 2 * p.kv_heads) + kRun - 1) / kRun;
}

template <typename T, int kHalf>
__global__ __launch_bounds__(kThreads) void ringfold_qkv_heads(QkvHeads p) {
  constexpr int kDim = 64 * kHalf;
  const int row_heads = static_cast<int>(p.heads + 2 * p.kv_heads), runs = runs_of(p);
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (item >= p.tokens * runs) return;
  const int64_t token = item / runs;
  const int begin = static_cast<int>(item % runs) * kRun;
  const T* row = static_cast<const T*>(p.qkv) + token * row_heads * kDim;
  const Head<kHalf> cos = load_head<float, kHalf>(p.cos + token * kDim),
                    sin = load_head<float, kHalf>(p.sin + token * kDim);
  Head<kHalf> heads[kRun];  // all on their way before the first is used
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    if (begin + i < row_heads) heads[i] = load_head<T, kHalf>(row + (begin + i) * kDim);
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const int head = begin + i;
    if (head >= row_heads) return;
    const Place place = place_of(p, head);
    Head<kHalf>& x = heads[i];
    void* out = place.part == Part::kQ ? p.q : place.part == Part::kK ? p.k : p.v;
    int64_t out_row = token * place.heads + place.head;
    if (place.part != Part::kQ && p.kv_row != nullptr) {
      if (p.kv_row[token] < 0) continue;
      out_row = p.kv_row[token] + place.head * p.kv_head_rows;
    }
    T* to = static_cast<T*>(out) + out_row * kDim;
    if (place.part == Part::kV) {
      store_head<T, kHalf>(to, x);
      continue;
    }
    const T* weight = static_cast<const T*>(place.part == Part::kQ ? p.q_weight : p.k_weight);
    if (weight != nullptr) {
      const float inverse_rms = inverse_rms_of(x, p.eps);
      const Head<kHalf> w = load_head<T, kHalf>(weight);
#pragma unroll
      for (int e = 0; e < kHalf; ++e) {
        x.first[e] *= inverse_rms * w.first[e];
        x.second[e] *= inverse_rms * w.second[e];
      }
    }
    Head<kHalf> y;
#pragma unroll
    for (int e = 0; e < kHalf; ++e) {
      y.first[e] = x.first[e] * cos.first[e] - x.second[e] * sin.first[e];
      y.second[e] = x.second[e] * cos.second[e] + x.first[e] * sin.second[e];
    }
    store_head<T, kHalf>(to, y);
  }
}

template <int kHalf>
__device__ inline void add_partial(const Head<kHalf>& mine, float* shared, float* partial) {
  const int at = static_cast<int>(threadIdx.x % 32) * kHalf;
  float* own = shared + (threadIdx.x / 32) * 64 * kHalf;
#pragma unroll
  for (int e = 0; e < kHalf; ++e) {
    own[at + e] = mine.first[e];
    own[32 * kHalf + at + e] = mine.second[e];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < 64 * kHalf; i += kThreads) {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += shared[warp * 64 * kHalf + i];
    partial[static_cast<int64_t>(blockIdx.x) * 64 * kHalf + i] = sum;
  }
  __syncthreads();
}

// The gradient through the norm of head n; g comes in as the gradient of its result.
template <typename T, int kHalf>
__device__ inline void norm_backward(Head<kHalf>& n, const T* weight, float eps, Head<kHalf>& g, Head<kHalf>& dweight) {
  const Head<kHalf> w = load_head<T, kHalf>(weight);
  const float inverse_rms = inverse_rms_of(n, eps);
  float along = 0;
#pragma unroll
  for (int e = 0; e < kHalf; ++e) {
    n.first[e] *= inverse_rms;
    n.second[e] *= inverse_rms;
    dweight.first[e] += g.first[e] * n.first[e];
    dweight.second[e] += g.second[e] * n.second[e];
    g.first[e] *= w.first[e];
    g.second[e] *= w.second[e];
    along += g.first[e] * n.first[e] + g.second[e] * n.second[e];
  }
  along = warp_sum(along) / (64.0F * kHalf);
#pragma unroll
  for (int e = 0; e < kHalf; ++e) {
    g.first[e] = (g.first[e] - n.first[e] * along) * inverse_rms;
    g.second[e] = (g.second[e] - n.second[e] * along) * inverse_rms;
  }
}

template <typename T, int kHalf>
__global__ __launch_bounds__(kThreads) void ringfold_qkv_heads_backward(QkvHeadsBackward p) {
  constexpr int kDim = 64 * kHalf;
  __shared__ float shared[kWarps * kDim];
  const int row_heads = static_cast<int>(p.heads + 2 * p.kv_heads), runs = runs_of(p);
  Head<kHalf> dq_weight = {}, dk_weight = {};
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; item < p.tokens * runs;
       item += stride) {
    const int64_t token = item / runs;
    const int begin = static_cast<int>(item % runs) * kRun;
    const int64_t row = token * row_heads * kDim;
    const Head<kHalf> cos = load_head<float, kHalf>(p.cos + token * kDim),
                      sin = load_head<float, kHalf>(p.sin + token * kDim);
    Head<kHalf> grads[kRun], heads[kRun];
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const int head = begin + i;
      if (head >= row_heads) break;
      const Place place = place_of(p, head);
      const void* in = place.part == Part::kQ ? p.dq : place.part == Part::kK ? p.dk : p.dv;
      grads[i] = load_head<T, kHalf>(static_cast<const T*>(in) + (token * place.heads + place.head) * kDim);
      if (place.part != Part::kV) heads[i] = load_head<T, kHalf>(static_cast<const T*>(p.qkv) + row + head * kDim);
    }
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const int head = begin + i;
      if (head >= row_heads) break;
      const Place place = place_of(p, head);
      const Head<kHalf>& dy = grads[i];
      T* to = static_cast<T*>(p.dqkv) + row + head * kDim;
      if (place.part == Part::kV) {
        store_head<T, kHalf>(to, dy);
        continue;
      }
      Head<kHalf> g;
#pragma unroll
      for (int e = 0; e < kHalf; ++e) {
        g.first[e] = dy.first[e] * cos.first[e] + dy.second[e] * sin.second[e];
        g.second[e] = dy.second[e] * cos.second[e] - dy.first[e] * sin.first[e];
      }
      if (p.q_weight != nullptr) {
        // Both branches spelled out: an index that the compiler does not know would move the sums out of registers.
        if (place.part == Part::kQ) {
          norm_backward<T, kHalf>(heads[i], static_cast<const T*>(p.q_weight), p.eps, g, dq_weight);
        } else {
          norm_backward<T, kHalf>(heads[i], static_cast<const T*>(p.k_weight), p.eps, g, dk_weight);
        }
      }
      store_head<T, kHalf>(to, g);
    }
  }
  if (p.q_weight == nullptr) return;
  add_partial<kHalf>(dq_weight, shared, p.dq_weight_partial);
  add_partial<kHalf>(dk_weight, shared, p.dk_weight_partial);
}

template <typename Call>
void by_head_dim(int64_t head_dim, Call call) {
  if (head_dim == 64) return call(std::integral_constant<int, 1>{});
  if (head_dim == 128) return call(std::integral_constant<int, 2>{});
  if (head_dim == 256) return call(std::integral_constant<int, 4>{});
  throw std::runtime_error("CUDA: qkv_heads: head dim is not 64, 128 or 256");
}

}  // namespace

void qkv_heads_forward(Type type, const QkvHeads& p, cudaStream_t stream) {
  const int64_t items = p.tokens * runs_of(p);
  if (items == 0) return;
  const auto blocks = static_cast<unsigned>((items + kWarps - 1) / kWarps);
  by_type(type, [&](auto t) {
    by_head_dim(p.head_dim, [&](auto half) {
      ringfold_qkv_heads<decltype(t), decltype(half)::value><<<blocks, kThreads, 0, stream>>>(p);
    });
  });
  check_launch("qkv_heads");
}

int64_t qkv_partial_rows() {
  return kPartialRows;
}

void qkv_heads_backward(Type type, const QkvHeadsBackward& p, cudaStream_t stream) {
  by_type(type, [&](auto t) {
    by_head_dim(p.head_dim, [&](auto half) {
      ringfold_qkv_heads_backward<decltype(t), decltype(half)::value><<<kPartialRows, kThreads, 0, stream>>>(p);
    });
  });
  check_launch("qkv_heads_backward");
}

}  // namespace ringfold::cuda
