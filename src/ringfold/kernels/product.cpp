#include "ringfold/kernels/product.h"

#include <ATen/ATen.h>

#include "ringfold/kernels/fused.h"

namespace ringfold {
namespace {

bool is_ours(const at::Tensor& a) {
  return a.is_cuda() && a.scalar_type() == at::kBFloat16;
}

at::Tensor empty_result(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  return at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (!is_ours(a)) return at::mm(a, b);
  const at::Tensor out = empty_result(a, b, a.scalar_type());
  fused::product(out, {}, a, b);
  return out;
}

void product_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (is_ours(a)) return fused::product(out, {}, a, b);
  at::Tensor into = out;
  at::mm_out(into, a, b);
}

at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b) {
  if (is_ours(a)) {
    const at::Tensor out = empty_result(a, b, at::kFloat);
    fused::product(out, {}, a, b);
    return out;
  }
  return a.scalar_type() == at::kFloat ? at::mm(a, b) : at::mm(a, b, at::kFloat);
}

at::Tensor product_plus(const at::Tensor& addend, const at::Tensor& a, const at::Tensor& b) {
  if (!is_ours(a)) return at::addmm(addend, a, b);
  const at::Tensor out = empty_result(a, b, a.scalar_type());
  fused::product(out, addend, a, b);
  return out;
}

void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  if (is_ours(a)) return fused::product(sum, sum, a, b);
  if (sum.scalar_type() == a.scalar_type()) {
    sum.addmm_(a, b);
    return;
  }
  at::Tensor into = sum;
  at::addmm_out(into, into, a, b, sum.scalar_type());
}

}  // namespace ringfold
