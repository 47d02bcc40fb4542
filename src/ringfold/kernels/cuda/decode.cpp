#include "ringfold/kernels/decode.h"

#include <ATen/ATen.h>

#include "ringfold/base/error.h"
#include "ringfold/kernels/cuda/decode.h"
#include "ringfold/kernels/cuda/tensors.h"

namespace ringfold::fused {

using cuda::in;
using cuda::stream_of;
using cuda::type_of;

at::Tensor qkv_heads_into_pages(const at::Tensor& qkv, const HeadShape& s, const HeadNorm& norm,
                                const at::Tensor& cos_nd, const at::Tensor& sin_nd, const at::Tensor& kv_row_n,
                                const Pages& pages) {
  RINGFOLD_ASSERT(pages.k_pgtd.is_contiguous() && pages.v_pgtd.is_contiguous() && pages.k_pgtd.size(2) == kPageTokens,
                  "pages are contiguous");
  RINGFOLD_ASSERT(pages.k_pgtd.scalar_type() == qkv.scalar_type(), "a cache has the type of the activations");
  const int64_t tokens = qkv.size(0);
  const at::Tensor q_nhd = at::empty({tokens, s.heads, s.head_dim}, qkv.options());
  cuda::qkv_heads_forward(type_of(qkv),
                          {in(qkv), in(norm.q_weight_d), in(norm.k_weight_d), in<float>(cos_nd), in<float>(sin_nd),
                           q_nhd.data_ptr(), pages.k_pgtd.data_ptr(), pages.v_pgtd.data_ptr(), tokens, s.heads,
                           s.kv_heads, s.head_dim, static_cast<float>(norm.eps), in<int64_t>(kv_row_n), kPageTokens},
                          stream_of(qkv));
  return q_nhd;
}

at::Tensor paged_attention(const at::Tensor& q_nhd, const Pages& pages, const PageWork& work, double scale) {
  const int64_t rows = q_nhd.size(0), heads = q_nhd.size(1), dim = q_nhd.size(2);
  const int64_t kv_heads = pages.k_pgtd.size(1), most = work.page_table.size(1);
  RINGFOLD_ASSERT(rows >= 1 && rows <= kMaxDecodedRows && heads % kv_heads == 0, "rows and heads fit the kernel");
  RINGFOLD_ASSERT(
      work.length_n.numel() == rows && work.sequence_n.numel() == rows && work.work_begin.numel() == rows + 1,
      "a length a row");
  const auto floats = q_nhd.options().dtype(at::kFloat);
  const at::Tensor out_nhd = at::empty_like(q_nhd), part_out = at::empty({rows, heads, most, dim}, floats);
  const at::Tensor part_max = at::empty({rows, heads, most}, floats), part_sum = at::empty_like(part_max);
  cuda::paged_attention(type_of(q_nhd),
                        {in(q_nhd), in(pages.k_pgtd), in(pages.v_pgtd), out_nhd.data_ptr(), in<int64_t>(work.length_n),
                         in<int64_t>(work.sequence_n), in<int64_t>(work.work_begin), in<int32_t>(work.page_table),
                         part_out.data_ptr<float>(), part_max.data_ptr<float>(), part_sum.data_ptr<float>(), rows,
                         heads, kv_heads, dim, most, static_cast<float>(scale)},
                        stream_of(q_nhd));
  return out_nhd;
}

at::Tensor draw(const at::Tensor& logits_nv, const at::Tensor& uniform_n, double temperature) {
  const int64_t rows = logits_nv.size(0);
  const at::Tensor drawn_2n = at::empty({2, rows}, logits_nv.options().dtype(at::kDouble));
  cuda::draw({in<float>(logits_nv), in<double>(uniform_n), drawn_2n.data_ptr<double>(), rows, logits_nv.size(1),
              static_cast<float>(1 / temperature)},
             stream_of(logits_nv));
  return drawn_2n;
}

}  // namespace ringfold::fused
