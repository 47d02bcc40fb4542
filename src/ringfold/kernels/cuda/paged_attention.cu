// One query a row reads keys and values once, so that memory is the limit: 4 bytes a multiply-add. A work item is one
// page of one row for a few query heads of one KV head; a fixed grid takes the items in turn, whatever the lengths are,
// which come from memory: the launch can be recorded. kLanes lanes hold a key's elements, 8 each, and walk over every
// kGroups-th token of the page with an online softmax of their own; groups, then pages, are merged in a fixed order.
#include "ringfold/kernels/cuda/decode.h"
#include "ringfold/kernels/cuda/device.cuh"

namespace ringfold::cuda {
namespace {

constexpr int kPage = 256;
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kUnroll = 4;    // tokens a group has on their way at a time
constexpr int kBlocks = 528;  // four on each of the 132 multiprocessors
constexpr int kMaxRows = 1024;
constexpr float kNone = -1e30F;  // a maximum over nothing: finite, so that differences are numbers

// Eight elements as they lie in memory.
template <typename T>
struct Eight {
  uint4 part[sizeof(T) / 2];
};

template <typename T>
__device__ inline Eight<T> stream8(const T* from) {
  Eight<T> raw;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i)
    raw.part[i] = __ldcs(reinterpret_cast<const uint4*>(from) + i);
  return raw;
}
template <typename T>
__device__ inline void widen8(const Eight<T>& raw, float (&x)[8]) {
  load8(reinterpret_cast<const T*>(raw.part), x);
}

template <int kRatio>
struct Softmax {
  float top[kRatio], sum[kRatio], acc[kRatio][8];
};

// The row whose items begin at or before `work`.
__device__ inline int row_of(const int* begin, int rows, int work) {
  int low = 0, high = rows;  // begin[low] <= work < begin[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (begin[middle] <= work ? low : high) = middle;
  }
  return low;
}

// The tokens of a page that are this group's. `count`: tokens of the page that the row sees, at least one.
template <typename T, int kLanes, int kRatio>
__device__ inline void attend_page(const T* k, const T* v, int count, const float (&q)[kRatio][8], Softmax<kRatio>& s) {
  constexpr int kDim = kLanes * 8, kGroups = kThreads / kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  for (int begin = 0; begin < count; begin += kGroups * kUnroll) {
    Eight<T> keys[kUnroll], values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int token = min(begin + u * kGroups + group, count - 1);
      keys[u] = stream8(k + token * kDim);
      values[u] = stream8(v + token * kDim);
    }
    float score[kUnroll][kRatio];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float x[8];
      widen8(keys[u], x);
#pragma unroll
      for (int j = 0; j < kRatio; ++j) {
        float dot = 0;
#pragma unroll
        for (int e = 0; e < 8; ++e) dot += q[j][e] * x[e];
#pragma unroll
        for (int step = kLanes / 2; step > 0; step /= 2) dot += __shfl_xor_sync(0xffffffffU, dot, step);
        score[u][j] = begin + u * kGroups + group < count ? dot : kNone;
      }
    }
#pragma unroll
    for (int j = 0; j < kRatio; ++j) {
      float top = s.top[j];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) top = fmaxf(top, score[u][j]);
      const float rescale = exp2f(s.top[j] - top);
      s.top[j] = top;
      s.sum[j] *= rescale;
#pragma unroll
      for (int e = 0; e < 8; ++e) s.acc[j][e] *= rescale;
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float x[8];
      widen8(values[u], x);
#pragma unroll
      for (int j = 0; j < kRatio; ++j) {
        const float weight = score[u][j] > kNone ? exp2f(score[u][j] - s.top[j]) : 0.0F;
        s.sum[j] += weight;
#pragma unroll
        for (int e = 0; e < 8; ++e) s.acc[j][e] += weight * x[e];
      }
    }
  }
}

template <int kLanes, int kRatio>
struct SharedGroups {
  static constexpr int kDim = kLanes * 8, kGroups = kThreads / kLanes;
  float top[kGroups][kRatio], sum[kGroups][kRatio], acc[kGroups][kRatio][kDim];
};

// The groups of the block together, as the partial result of heads [first_head, + kRatio) on the row's page `chunk`.
template <int kLanes, int kRatio>
__device__ inline void store_part(const PagedAttention& p, const Softmax<kRatio>& s, int64_t row, int first_head,
                                  int chunk, SharedGroups<kLanes, kRatio>& shared) {
  using Groups = SharedGroups<kLanes, kRatio>;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, group = static_cast<int>(threadIdx.x) / kLanes;
#pragma unroll
  for (int j = 0; j < kRatio; ++j) {
    if (lane == 0) {
      shared.top[group][j] = s.top[j];
      shared.sum[group][j] = s.sum[j];
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) shared.acc[group][j][lane * 8 + e] = s.acc[j][e];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRatio * Groups::kDim; i += kThreads) {
    const int j = i / Groups::kDim, e = i % Groups::kDim;
    float top = kNone, sum = 0, acc = 0;
#pragma unroll
    for (int g = 0; g < Groups::kGroups; ++g) top = fmaxf(top, shared.top[g][j]);
#pragma unroll
    for (int g = 0; g < Groups::kGroups; ++g) {
      const float weight = exp2f(shared.top[g][j] - top);
      sum += weight * shared.sum[g][j];
      acc += weight * shared.acc[g][j][e];
    }
    const int64_t part = (row * p.heads + first_head + j) * p.pages_per_sequence + chunk;
    p.part_out[part * Groups::kDim + e] = acc;
    if (e == 0) {
      p.part_max[part] = top;
      p.part_sum[part] = sum;
    }
  }
  __syncthreads();
}

template <typename T, int kLanes, int kRatio>
__global__ __launch_bounds__(kThreads) void ringfold_paged_attention(PagedAttention p) {
  constexpr int kDim = kLanes * 8;
  constexpr float kLog2E = 1.4426950408889634F;
  __shared__ SharedGroups<kLanes, kRatio> shared;
  __shared__ int begin[kMaxRows + 1];
  const int rows = static_cast<int>(p.rows);
  for (int i = static_cast<int>(threadIdx.x); i <= rows; i += kThreads) begin[i] = static_cast<int>(p.work_begin[i]);
  __syncthreads();
  const int parts = static_cast<int>(p.heads) / kRatio, ratio = static_cast<int>(p.heads / p.kv_heads);
  const int items = begin[rows] * parts, lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const int work = item / parts, first_head = item % parts * kRatio;
    const int row = row_of(begin, rows, work), chunk = work - begin[row];
    const int count = min(kPage, static_cast<int>(p.length[row]) - chunk * kPage);
    const int64_t page = p.page_table[p.sequence[row] * p.pages_per_sequence + chunk];
    const int64_t place = (page * p.kv_heads + first_head / ratio) * kPage * kDim + lane * 8;
    float q[kRatio][8];
    Softmax<kRatio> s;
#pragma unroll
    for (int j = 0; j < kRatio; ++j) {
      load8(static_cast<const T*>(p.q) + (row * p.heads + first_head + j) * kDim + lane * 8, q[j]);
      s.top[j] = kNone;
      s.sum[j] = 0;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        q[j][e] *= p.scale * kLog2E;
        s.acc[j][e] = 0;
      }
    }
    attend_page<T, kLanes, kRatio>(static_cast<const T*>(p.k) + place, static_cast<const T*>(p.v) + place, count, q, s);
    store_part<kLanes, kRatio>(p, s, row, first_head, chunk, shared);
  }
}

// One block a row and head: a warp takes every fourth page, a lane kEach neighbouring elements.
template <typename T, int kEach>
__global__ __launch_bounds__(kThreads) void ringfold_merge_pages(PagedAttention p) {
  constexpr int kDim = 32 * kEach;
  __shared__ float shared_acc[kWarps][kDim], shared_sum[kWarps], shared_top[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int chunks = static_cast<int>((p.length[blockIdx.x / p.heads] + kPage - 1) / kPage);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.pages_per_sequence;
  float top = kNone;
  for (int c = static_cast<int>(threadIdx.x); c < chunks; c += kThreads) top = fmaxf(top, p.part_max[first + c]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, step));
  if (lane == 0) shared_top[warp] = top;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) top = fmaxf(top, shared_top[w]);
  float acc[kEach] = {}, sum = 0;
#pragma unroll 4
  for (int c = warp; c < chunks; c += kWarps) {
    const float weight = exp2f(p.part_max[first + c] - top);
    sum += weight * p.part_sum[first + c];
    const float* from = p.part_out + (first + c) * kDim + lane * kEach;
#pragma unroll
    for (int e = 0; e < kEach; ++e) acc[e] += weight * from[e];
  }
  if (lane == 0) shared_sum[warp] = sum;
#pragma unroll
  for (int e = 0; e < kEach; ++e) shared_acc[warp][lane * kEach + e] = acc[e];
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < kDim; e += kThreads) {
    float total = 0, out = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      total += shared_sum[w];
      out += shared_acc[w][e];
    }
    static_cast<T*>(p.out)[static_cast<int64_t>(blockIdx.x) * kDim + e] =
        from_float<T>(chunks > 0 ? out / total : 0.0F);
  }
}

template <typename T, int kLanes>
void launch(const PagedAttention& p, cudaStream_t stream) {
  const int64_t ratio = p.heads / p.kv_heads;
  if (ratio % 4 == 0) {
    ringfold_paged_attention<T, kLanes, 4><<<kBlocks, kThreads, 0, stream>>>(p);
  } else if (ratio % 2 == 0) {
    ringfold_paged_attention<T, kLanes, 2><<<kBlocks, kThreads, 0, stream>>>(p);
  } else {
    ringfold_paged_attention<T, kLanes, 1><<<kBlocks, kThreads, 0, stream>>>(p);
  }
  check_launch("paged_attention");
  ringfold_merge_pages<T, kLanes / 4><<<static_cast<unsigned>(p.rows * p.heads), kThreads, 0, stream>>>(p);
  check_launch("merge_pages");
}

}  // namespace

void paged_attention(Type type, const PagedAttention& p, cudaStream_t stream) {
  if (p.rows > kMaxRows) throw std::runtime_error("CUDA: paged_attention: more rows than 1024");
  by_type(type, [&](auto t) {
    using T = decltype(t);
    if (p.head_dim == 64) return launch<T, 8>(p, stream);
    if (p.head_dim == 128) return launch<T, 16>(p, stream);
    if (p.head_dim == 256) return launch<T, 32>(p, stream);
    throw std::runtime_error("CUDA: paged_attention: head dim is not 64, 128 or 256");
  });
}

}  // namespace ringfold::cuda
