// rms_norm and apply_rope against the formulas written with plain differentiable operations.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ringfold/kernels/rms_norm.h"
#include "ringfold/kernels/rope.h"

namespace ringfold {
namespace {

const auto kFp64 = at::TensorOptions(at::kDouble);

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(RmsNorm, equals_the_formula_with_its_gradients) {
  at::set_num_threads(1);
  at::manual_seed(3);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{5, 8}, {5, 3, 8}}) {
    const at::Tensor x = at::randn(shape, kFp64).requires_grad_(), weight = at::randn({8}, kFp64).requires_grad_();
    const at::Tensor dy = at::randn(shape, kFp64);
    const at::Tensor got = rms_norm(x, weight, 1e-3);
    const at::Tensor wanted = weight * (x * at::rsqrt(x.pow(2).mean(-1, true) + 1e-3));
    EXPECT_LT(distance(got, wanted), 1e-13);
    const auto got_gradients = torch::autograd::grad({got}, {x, weight}, {dy});
    const auto wanted_gradients = torch::autograd::grad({wanted}, {x, weight}, {dy});
    EXPECT_LT(distance(got_gradients[0], wanted_gradients[0]), 1e-12);
    EXPECT_LT(distance(got_gradients[1], wanted_gradients[1]), 1e-12);
  }
}

TEST(RmsNorm, rows_of_zeros_stay_zero_and_finite) {
  const at::Tensor x = at::zeros({2, 8}, kFp64).requires_grad_(), weight = at::ones({8}, kFp64).requires_grad_();
  const at::Tensor y = rms_norm(x, weight, 1e-6);
  EXPECT_TRUE(at::equal(y, at::zeros_like(y)));
  torch::autograd::backward({y.sum()}, {});
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(at::equal(weight.grad(), at::zeros_like(weight)));
}

TEST(Rope, equals_a_rotation_of_each_pair_with_its_gradient) {
  at::set_num_threads(1);
  at::manual_seed(4);
  const at::Tensor x = at::randn({6, 3, 8}, kFp64).requires_grad_(), dy = at::randn({6, 3, 8}, kFp64);
  const at::Tensor half = at::randn({6, 4}, kFp64), angles = at::cat({half, half}, 1);
  const at::Tensor got = apply_rope(x, angles.cos(), angles.sin());
  const at::Tensor a = x.slice(2, 0, 4), b = x.slice(2, 4), cos = half.cos().unsqueeze(1),
                   sin = half.sin().unsqueeze(1);
  const at::Tensor wanted = at::cat({a * cos - b * sin, b * cos + a * sin}, 2);
  EXPECT_LT(distance(got, wanted), 1e-14);
  EXPECT_LT(distance(torch::autograd::grad({got}, {x}, {dy})[0], torch::autograd::grad({wanted}, {x}, {dy})[0]), 1e-14);
}

TEST(Rope, attention_scores_depend_on_the_distance_alone) {
  const at::Tensor q = at::randn({1, 1, 8}, kFp64), k = at::randn({1, 1, 8}, kFp64);
  const at::Tensor frequencies = at::pow(100.0, -at::arange(4, kFp64) / 4).repeat({2}).unsqueeze(0);
  const auto at_position = [&](const at::Tensor& x, double position) {
    return apply_rope(x, (frequencies * position).cos(), (frequencies * position).sin());
  };
  const double near = (at_position(q, 7) * at_position(k, 3)).sum().item<double>();
  const double far = (at_position(q, 107) * at_position(k, 103)).sum().item<double>();
  EXPECT_NEAR(near, far, 1e-12);
}

}  // namespace
}  // namespace ringfold
