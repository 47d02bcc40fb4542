#include "ringfold/kernels/linear_log_prob.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/autograd.h>

namespace ringfold {
namespace {

struct Case {
  at::Tensor hidden_nh, weight_vh, target_n, dlog_prob_n, dentropy_n;
};

Case make_case(int64_t rows) {
  at::set_num_threads(1);
  at::manual_seed(11);
  const auto fp64 = at::TensorOptions(at::kDouble);
  return {at::randn({rows, 5}, fp64).requires_grad_(), at::randn({13, 5}, fp64).requires_grad_(),
          at::randint(13, {rows}, at::TensorOptions(at::kLong)), at::randn({rows}, fp64), at::randn({rows}, fp64)};
}

TokenScores plain(const Case& c, double temperature) {
  const at::Tensor log_p_nv = at::log_softmax(at::matmul(c.hidden_nh, c.weight_vh.t()) / temperature, 1);
  return {log_p_nv.gather(1, c.target_n.unsqueeze(1)).squeeze(1), -(log_p_nv.exp() * log_p_nv).sum(1),
          log_p_nv.argmax(1) == c.target_n};
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(LinearLogProb, equals_log_softmax_in_values_and_gradients) {
  const Case c = make_case(17);
  for (const double temperature : {1.0, 0.7}) {
    const TokenScores wanted = plain(c, temperature);
    for (const int64_t chunk_rows : {1, 7, 17, 1000}) {
      const TokenScores got = linear_log_prob(c.hidden_nh, c.weight_vh, c.target_n, {chunk_rows, temperature});
      EXPECT_LT(distance(got.log_prob_n, wanted.log_prob_n), 1e-12);
      EXPECT_LT(distance(got.entropy_n, wanted.entropy_n), 1e-12);
      EXPECT_TRUE(at::equal(got.greedy_n, wanted.greedy_n));
      EXPECT_FALSE(got.greedy_n.requires_grad());
      // Through log-probs alone, entropy alone, and both.
      for (const auto& [use_log_prob, use_entropy] : {std::pair{1, 0}, {0, 1}, {1, 1}}) {
        const auto gradients = [&](const TokenScores& scores) {
          at::Tensor loss = at::zeros({}, c.hidden_nh.options().requires_grad(false));
          if (use_log_prob) loss = loss + (scores.log_prob_n * c.dlog_prob_n).sum();
          if (use_entropy) loss = loss + (scores.entropy_n * c.dentropy_n).sum();
          return torch::autograd::grad({loss}, {c.hidden_nh, c.weight_vh}, {}, /*retain_graph=*/true);
        };
        const auto got_gradients = gradients(got), wanted_gradients = gradients(wanted);
        EXPECT_LT(distance(got_gradients[0], wanted_gradients[0]), 1e-12) << chunk_rows;
        EXPECT_LT(distance(got_gradients[1], wanted_gradients[1]), 1e-12) << chunk_rows;
      }
    }
  }
}

TEST(LinearLogProb, without_rows_it_still_joins_the_backward) {
  const Case c = make_case(0);
  const TokenScores scores = linear_log_prob(c.hidden_nh, c.weight_vh, c.target_n, {});
  EXPECT_EQ(scores.log_prob_n.numel(), 0);
  EXPECT_EQ(scores.entropy_n.numel(), 0);
  EXPECT_EQ(scores.greedy_n.numel(), 0);
  torch::autograd::backward({scores.log_prob_n.sum() + scores.entropy_n.sum()}, {});
  EXPECT_EQ(c.hidden_nh.grad().sizes(), (std::vector<int64_t>{0, 5}));
  EXPECT_TRUE(at::equal(c.weight_vh.grad(), at::zeros_like(c.weight_vh)));
}

TEST(LinearLogProb, large_logits_stay_finite) {
  const auto options = at::TensorOptions(at::kFloat);
  const at::Tensor hidden = at::full({2, 1}, 1000, options).requires_grad_();
  const at::Tensor weight = at::arange(4, options).view({4, 1}).requires_grad_();
  const at::Tensor target = at::arange(2, at::TensorOptions(at::kLong)) * 3;
  const TokenScores scores = linear_log_prob(hidden, weight, target, {});
  EXPECT_FLOAT_EQ(scores.log_prob_n[0].item<float>(), -3000);
  EXPECT_FLOAT_EQ(scores.log_prob_n[1].item<float>(), 0);
  EXPECT_FLOAT_EQ(scores.entropy_n[1].item<float>(), 0);
  EXPECT_TRUE(scores.greedy_n[1].item<bool>());
  EXPECT_FALSE(scores.greedy_n[0].item<bool>());
  torch::autograd::backward({scores.log_prob_n.sum() + scores.entropy_n.sum()}, {});
  EXPECT_TRUE(hidden.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(weight.grad().isfinite().all().item<bool>());
}

TEST(LinearLogProb, weight_gradients_accumulate_in_place) {
  const Case c = make_case(6);
  const at::Tensor preset = at::ones_like(c.weight_vh, at::TensorOptions().requires_grad(false));
  c.weight_vh.mutable_grad() = preset;
  torch::autograd::backward({linear_log_prob(c.hidden_nh, c.weight_vh, c.target_n, {4, 1.0}).log_prob_n.sum()}, {});
  EXPECT_EQ(c.weight_vh.grad().data_ptr(), preset.data_ptr());
  EXPECT_GT(distance(preset, at::ones_like(preset)), 1e-3);
}

// Case M2: memory grows with the chunk, not with rows x vocabulary.
TEST(LinearLogProb, whole_logits_are_never_held) {
  at::set_num_threads(1);
  const auto peak_bytes = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * int64_t{1024};
  };
  constexpr int64_t kRows = 2048, kVocabulary = 50000, kHidden = 4;
  const at::Tensor weight = at::randn({kVocabulary, kHidden}).requires_grad_();
  const at::Tensor hidden = at::randn({kRows, kHidden}).requires_grad_();
  const at::Tensor target = at::randint(kVocabulary, {kRows}, at::TensorOptions(at::kLong));
  const int64_t before = peak_bytes();
  const TokenScores scores = linear_log_prob(hidden, weight, target, {.chunk_rows = 64});
  torch::autograd::backward({scores.log_prob_n.sum() + scores.entropy_n.sum()}, {});
  const int64_t chunk_bytes = 64 * kVocabulary * int64_t{sizeof(float)};
  // A chunk needs a handful of buffers, and the allocator keeps some: half of the whole logits is far above both.
  EXPECT_LT(peak_bytes() - before, 16 * chunk_bytes) << "whole logits would be " << kRows / 64 << " chunks";
}

}  // namespace
}  // namespace ringfold
