// The CUDA kernels of decoding; conventions as in launch.h.
#pragma once

#include "ringfold/kernels/cuda/launch.h"

namespace ringfold::cuda {

// Attention of one query a row over pages of keys and values (pages, kv_heads, 256, head_dim). Pass 1: work item =
// page of a row, with partial results; pass 2 merges them.
struct PagedAttention {
  const void *q, *k, *v;
  void* out;  // (rows, heads, head_dim), as q
  const int64_t *length, *sequence, *work_begin;
  const int32_t* page_table;
  float *part_out, *part_max, *part_sum;  // (rows, heads, pages_per_sequence[, head_dim])
  int64_t rows, heads, kv_heads, head_dim, pages_per_sequence;
  float scale;
};
void paged_attention(Type type, const PagedAttention& p, cudaStream_t stream);

// drawn (2, rows): token ids and log-probs.
struct Draw {
  const float* logits;
  const double* uniform;
  double* drawn;
  int64_t rows, vocabulary;
  float inverse_temperature;
};
void draw(const Draw& p, cudaStream_t stream);

}  // namespace ringfold::cuda
