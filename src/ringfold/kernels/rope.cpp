#include "ringfold/kernels/rope.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace ringfold {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor rotate(const at::Tensor& x_thd, const at::Tensor& cos_td, const at::Tensor& sin_td) {
  const int64_t half = x_thd.size(2) / 2;
  const at::Tensor wide_thd = x_thd.to(cos_td.scalar_type());
  const at::Tensor turned = at::cat({wide_thd.slice(2, half).neg(), wide_thd.slice(2, 0, half)}, 2);
  return at::mul(wide_thd, cos_td.unsqueeze(1)).addcmul_(turned, sin_td.unsqueeze(1)).to(x_thd.scalar_type());
}

struct Rope : torch::autograd::Function<Rope> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_thd, const at::Tensor& cos_td,
                            const at::Tensor& sin_td) {
    ctx->save_for_backward({cos_td, sin_td});
    return rotate(x_thd, cos_td, sin_td);
  }

  // The transpose of a rotation turns the other way; cos and sin are equal in both halves, so this is exact.
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    return {rotate(grads[0], saved[0], saved[1].neg()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor apply_rope(const at::Tensor& x_thd, const at::Tensor& cos_td, const at::Tensor& sin_td) {
  return Rope::apply(x_thd, cos_td, sin_td);
}

}  // namespace ringfold
