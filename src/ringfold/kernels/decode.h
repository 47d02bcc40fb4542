// GPU kernels of decoding: one new token a sequence, keys and values in pages (fp32 or bf16, contiguous, no autograd).
// A page holds kPageTokens tokens of one layer's keys (or values), head by head: (pages, g, kPageTokens, d). A twin
// file stands in where the program is built without CUDA. Legend: n new tokens, h query heads, g KV heads, d head dim,
// p pages, v vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include "ringfold/kernels/fused.h"

namespace ringfold::fused {

constexpr int64_t kPageTokens = 256;
constexpr int64_t kMaxDecodedRows = 1024;
constexpr int64_t kMaxDrawnVocabulary = int64_t{64} * 4096;

// One layer's cache.
struct Pages {
  at::Tensor k_pgtd, v_pgtd;
};

// qkv_heads (fused.h), keys and values straight into their pages: token i goes to row kv_row_n[i] of its page, counted
// in rows of d elements over all pages for head 0; -1: nowhere. Returns q (n, h, d).
at::Tensor qkv_heads_into_pages(const at::Tensor& qkv, const HeadShape& shape, const HeadNorm& norm,
                                const at::Tensor& cos_nd, const at::Tensor& sin_nd, const at::Tensor& kv_row_n,
                                const Pages& pages);

// Which pages a token sees. Work is dealt out page by page: row i has the items [work_begin[i], work_begin[i + 1]), one
// a page that it uses.
struct PageWork {
  at::Tensor length_n;    // int64: keys that row i sees, its own among them; 0: the row is empty and gives zeros
  at::Tensor sequence_n;  // int64: its row of page_table
  at::Tensor work_begin;  // int64 (n + 1)
  at::Tensor page_table;  // int32 (sequences, pages of one)
};
// Attention of every query on its own sequence, scores times `scale`; sums in fp32, page after page, so that a row's
// result does not depend on the others. h a multiple of g, d 64, 128 or 256, n at most kMaxDecodedRows. (n, h, d).
at::Tensor paged_attention(const at::Tensor& q_nhd, const Pages& pages, const PageWork& work, double scale);

// One token a row by the inverse of the cumulative distribution softmax(logits / temperature) at uniform_n (fp64, in
// [0, 1)); fp32 logits, v at most kMaxDrawnVocabulary. Returns fp64 (2, n): token ids, which are exact there, and
// log-probs. A row's result does not depend on the others.
at::Tensor draw(const at::Tensor& logits_nv, const at::Tensor& uniform_n, double temperature);

}  // namespace ringfold::fused
