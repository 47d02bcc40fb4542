#include "ringfold/kernels/add_product.h"

#include <ATen/ATen.h>

namespace ringfold {

void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  if (sum.scalar_type() == a.scalar_type()) {
    sum.addmm_(a, b);
    return;
  }
  at::Tensor into = sum;
  at::addmm_out(into, into, a, b, sum.scalar_type());
}

}  // namespace ringfold
