// Kernels of the layers, the head and the optimizer on a GPU in bf16, against fp64 on the CPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ringfold/device/device.h"
#include "ringfold/kernels/linear_log_prob.h"
#include "ringfold/kernels/rms_norm.h"
#include "ringfold/kernels/rope.h"
#include "ringfold/mesh/single_rank.h"
#include "ringfold/train/optimizer.h"

namespace ringfold {
namespace {

const at::Device kGpu(at::kCUDA, 0);

at::Tensor wide(const at::Tensor& x) {
  return x.detach().to(at::Device(at::kCPU), at::kDouble);
}

double relative(const at::Tensor& got, const at::Tensor& want) {
  const double norm = wide(want).norm().item<double>();
  return (wide(got) - wide(want)).norm().item<double>() / (norm == 0 ? 1 : norm);
}

at::Tensor leaf(at::IntArrayRef sizes) {
  return at::randn(sizes, at::TensorOptions(at::kBFloat16).device(kGpu)).requires_grad_();
}

at::Tensor twin(const at::Tensor& x) {
  return wide(x).requires_grad_();
}

TEST(RmsNormOnGpu, equals_fp64) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{300, 2560}, {7, 1024}, {65, 4, 128}, {3, 2, 64}}) {
    const at::Tensor x = leaf(sizes), w = leaf({sizes.back()}), dy = at::randn_like(x).detach();
    const at::Tensor x64 = twin(x), w64 = twin(w);
    const at::Tensor y = rms_norm(x, w, 1e-6), y64 = rms_norm(x64, w64, 1e-6);
    y.backward(dy);
    y64.backward(wide(dy));
    EXPECT_LE(relative(y, y64), 4e-3);
    EXPECT_LE(relative(x.grad(), x64.grad()), 6e-3);
    EXPECT_LE(relative(w.grad(), w64.grad()), 6e-3);
  }
}

TEST(RopeOnGpu, equals_fp64) {
  const at::Tensor x = leaf({77, 6, 128}), dy = at::randn_like(x).detach(), x64 = twin(x);
  const at::Tensor angles = at::randn({77, 64}, at::TensorOptions(at::kFloat).device(kGpu)).repeat({1, 2});
  const at::Tensor y = apply_rope(x, angles.cos(), angles.sin());
  const at::Tensor y64 = apply_rope(x64, wide(angles).cos(), wide(angles).sin());
  y.backward(dy);
  y64.backward(wide(dy));
  EXPECT_LE(relative(y, y64), 4e-3);
  EXPECT_LE(relative(x.grad(), x64.grad()), 4e-3);
}

TEST(LinearLogProbOnGpu, equals_fp64) {
  for (const double temperature : {1.0, 0.7}) {
    const at::Tensor hidden = leaf({101, 256});
    const at::Tensor weight = leaf({5003, 256}).detach().mul(0.05).requires_grad_();
    const at::Tensor target = at::randint(5003, {101}, at::TensorOptions(at::kLong).device(kGpu));
    const at::Tensor hidden64 = twin(hidden), weight64 = twin(weight);
    const LinearLogProbOptions options{32, temperature};
    const TokenScores got = linear_log_prob(hidden, weight, target, options);
    const TokenScores want = linear_log_prob(hidden64, weight64, target.cpu(), options);
    EXPECT_LE((wide(got.log_prob_n) - want.log_prob_n.detach()).abs().max().item<double>(), 2e-3);
    EXPECT_LE((wide(got.entropy_n) - want.entropy_n.detach()).abs().max().item<double>(), 2e-3);
    (got.log_prob_n.sum() + got.entropy_n.mul(0.3).sum()).backward();
    (want.log_prob_n.sum() + want.entropy_n.mul(0.3).sum()).backward();
    EXPECT_LE(relative(hidden.grad(), hidden64.grad()), 1e-2);
    EXPECT_LE(relative(weight.grad(), weight64.grad()), 1e-2);
  }
}

TEST(OptimizerOnGpu, keeps_masters_and_gradients_in_fp32) {
  std::vector<Parameter> parameters;
  for (const int64_t rows : {3, 70}) {
    const std::vector<int64_t> sizes = {rows, 40};
    parameters.push_back({"w" + std::to_string(rows), leaf(sizes), {}, true});
  }
  std::vector<Parameter> copies;
  for (const Parameter& parameter : parameters) copies.push_back({parameter.name, twin(parameter.value), {}, true});
  FlatParameters flat(parameters), flat64(copies);
  const LaneComms alone = single_rank_comms();
  AdamW adam(flat, {.weight_decay = 0.1}), adam64(flat64, {.weight_decay = 0.1});
  for (int step = 0; step < 3; ++step) {
    flat.zero_gradients();
    flat.gradients().normal_();
    flat64.gradients().copy_(wide(flat.gradients()));
    const double norm = flat64.gradient_norm(*alone.collectives);
    EXPECT_NEAR(flat.gradient_norm(*alone.collectives), norm, 1e-5 * norm);
    adam.step(1e-3, 0.5);
    adam64.step(1e-3, 0.5);
  }
  EXPECT_EQ(flat.gradients().scalar_type(), at::kFloat);
  EXPECT_LE(relative(flat.masters(), flat64.masters()), 1e-5);
  EXPECT_TRUE(at::equal(flat.values(), flat.masters().to(at::kBFloat16)));
  EXPECT_EQ(parameters[1].value.data_ptr(), static_cast<char*>(flat.values().data_ptr()) + 3 * 40 * 2);
}

TEST(OptimizerOnGpu, sleeps_and_wakes_bit_by_bit_and_gives_its_memory) {
  std::vector<Parameter> parameters{{"w", leaf({4096, 1024}), {}, true}};
  FlatParameters flat(parameters);
  AdamW adam(flat, {});
  const int64_t state_bytes = 4096 * 1024 * (4 + 4 + 4 + 4);
  for (int round = 0; round < 2; ++round) {
    flat.gradients().normal_();
    adam.step(1e-3, 1);
    const at::Tensor masters = flat.masters().cpu(), first = adam.first_moment().cpu(),
                     second = adam.second_moment().cpu(), weights = flat.values().cpu();
    const int64_t awake = device_memory(kGpu).allocated_bytes;
    for (int again = 0; again < 2; ++again) adam.sleep(), flat.sleep();
    EXPECT_LE(device_memory(kGpu).allocated_bytes, awake - state_bytes);
    EXPECT_TRUE(at::equal(flat.values().cpu(), weights));
    for (int again = 0; again < 2; ++again) flat.wake(), adam.wake();
    EXPECT_TRUE(flat.masters().is_cuda() && adam.first_moment().is_cuda());
    EXPECT_TRUE(at::equal(flat.masters().cpu(), masters));
    EXPECT_TRUE(at::equal(adam.first_moment().cpu(), first));
    EXPECT_TRUE(at::equal(adam.second_moment().cpu(), second));
    EXPECT_EQ(flat.gradients().abs().max().item<float>(), 0);
  }
}

TEST(GradientsOnGpu, of_bf16_weights_add_up_in_fp32) {
  std::vector<Parameter> parameters{{"w", leaf({64, 64}), {}, true}};
  FlatParameters flat(parameters);
  const at::Tensor x = at::ones({4, 64}, at::TensorOptions(at::kBFloat16).device(kGpu));
  // 4 a time: a bf16 sum would stick at 1024.
  for (int i = 0; i < 300; ++i) at::linear(x, parameters[0].value).sum().backward();
  EXPECT_EQ(flat.gradients().min().item<float>(), 1200);
  EXPECT_EQ(flat.gradients().max().item<float>(), 1200);
}

}  // namespace
}  // namespace ringfold
