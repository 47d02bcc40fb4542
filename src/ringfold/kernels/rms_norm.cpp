#include "ringfold/kernels/rms_norm.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ringfold/kernels/fused.h"

namespace ringfold {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Half precision is computed in fp32.
at::Tensor widened(const at::Tensor& x) {
  return x.to(at::toOpMathType(x.scalar_type()));
}

bool has_fused_norm(const at::Tensor& x) {
  return x.is_cuda() && x.scalar_type() != at::kDouble && x.size(-1) % 8 == 0 && x.size(-1) <= 16384;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight_d, double eps) {
    if (has_fused_norm(x)) {
      const fused::Normed normed = fused::rms_norm(x.contiguous(), weight_d, eps);
      ctx->save_for_backward({x, weight_d, normed.inverse_rms_n});
      return normed.y_nw;
    }
    const at::Tensor wide_x = widened(x);
    const at::Tensor inverse_rms = wide_x.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
    ctx->save_for_backward({x, weight_d, inverse_rms});
    return at::mul(wide_x, inverse_rms).mul_(weight_d).to(x.scalar_type());
  }

  // With n = x / rms and g = dy * weight: dx = (g - n * mean(g * n)) / rms; dweight = sum over rows of dy * n.
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    if (has_fused_norm(saved[0])) {
      const at::Tensor dweight_d = at::zeros(saved[1].sizes(), saved[1].options().dtype(at::kFloat));
      const at::Tensor dx = fused::rms_norm_backward(grads[0].contiguous(), saved[0].contiguous(), saved[1], saved[2],
                                                     at::Tensor(), dweight_d, /*with_y=*/false)
                                .dx_nw;
      return {dx, dweight_d.to(saved[1].scalar_type()), at::Tensor()};
    }
    const at::Tensor x = widened(saved[0]), weight_d = widened(saved[1]), dy = widened(grads[0]);
    const at::Tensor& inverse_rms = saved[2];
    const int64_t width = weight_d.numel();
    const at::Tensor normed = at::mul(x, inverse_rms);
    at::Tensor dweight_d, dx;
    if (ctx->needs_input_grad(1)) dweight_d = at::mul(dy, normed).reshape({-1, width}).sum(0);
    if (ctx->needs_input_grad(0)) {
      dx = at::mul(dy, weight_d);
      const at::Tensor along = at::mul(dx, normed).mean(-1, /*keepdim=*/true);
      dx.sub_(at::mul(normed, along)).mul_(inverse_rms);
    }
    const auto type = saved[0].scalar_type();
    if (dx.defined()) dx = dx.to(type);
    if (dweight_d.defined()) dweight_d = dweight_d.to(type);
    return {dx, dweight_d, at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_d, double eps) {
  return RmsNorm::apply(x, weight_d, eps);
}

}  // namespace ringfold
