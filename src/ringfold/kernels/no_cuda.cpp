// Twin of cuda/: no tensor can lie on a GPU.
#include "ringfold/base/error.h"
#include "ringfold/kernels/decode.h"
#include "ringfold/kernels/fused.h"

namespace ringfold::fused {
namespace {

[[noreturn]] void fail() {
  assertion_failed("CUDA", __FILE__, __LINE__, "a GPU kernel in a program without CUDA");
}

}  // namespace

Normed rms_norm(const at::Tensor&, const at::Tensor&, double) {
  fail();
}
NormGrads rms_norm_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const at::Tensor&, const at::Tensor&, bool) {
  fail();
}
Heads qkv_heads(const at::Tensor&, const HeadShape&, const HeadNorm&, const at::Tensor&, const at::Tensor&) {
  fail();
}
at::Tensor qkv_heads_backward(const Heads&, const at::Tensor&, const HeadShape&, const HeadNorm&, const at::Tensor&,
                              const at::Tensor&, const HeadNormGrads&) {
  fail();
}
at::Tensor swiglu(const at::Tensor&) {
  fail();
}
SwigluGrads swiglu_backward(const at::Tensor&, const at::Tensor&) {
  fail();
}
void product(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  fail();
}
RowScores log_prob(const at::Tensor&, const at::Tensor&, double) {
  fail();
}
at::Tensor log_prob_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                             const at::Tensor&, const at::Tensor&, double, at::ScalarType) {
  fail();
}
void merge_attention(AttentionBlock&, const AttentionBlock&) {
  fail();
}
at::Tensor sum_of_squares(const at::Tensor&) {
  fail();
}
void adamw(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
           const AdamWCall&) {
  fail();
}
at::Tensor qkv_heads_into_pages(const at::Tensor&, const HeadShape&, const HeadNorm&, const at::Tensor&,
                                const at::Tensor&, const at::Tensor&, const Pages&) {
  fail();
}
at::Tensor paged_attention(const at::Tensor&, const Pages&, const PageWork&, double) {
  fail();
}
at::Tensor draw(const at::Tensor&, const at::Tensor&, double) {
  fail();
}

}  // namespace ringfold::fused
