// A group of one: plain per-sample attention, no exchange.
#include <gtest/gtest.h>

#include "attention/attention_case.h"

namespace ringfold {
namespace {

CpContextPtr alone(const Lengths& lengths, AttentionKernel kernel) {
  return make_context(lengths, CpGroup{LaneRank(3), 1, 0}, nullptr, {CpScheme::kRing, kernel});
}

TEST(AttentionAlone, equals_plain_attention_without_an_exchange) {
  at::set_num_threads(1);
  for (AttentionKernel kernel : {AttentionKernel::kFlash, AttentionKernel::kReference}) {
    for (const Lengths& lengths : {Lengths{1}, Lengths{2}, Lengths{3}, Lengths{1, 2, 3}, Lengths{7, 131, 1, 29}}) {
      const AttentionCase data(lengths, {4, 2, 8}, 1);
      const CpContextPtr context = alone(lengths, kernel);
      expect_equals_one_rank(run_attention(data, context, at::kDouble), data, context->layout, 1e-13);
      expect_equals_one_rank(run_attention(data, context, at::kFloat), data, context->layout, 3e-6);
    }
  }
}

TEST(AttentionAlone, all_gather_needs_no_exchange_either) {
  const AttentionCase data({5, 3}, {2, 2, 4}, 2);
  const CpContextPtr context =
      make_context(data.lengths, CpGroup{}, nullptr, {CpScheme::kAllGatherKv, AttentionKernel::kFlash});
  expect_equals_one_rank(run_attention(data, context, at::kDouble), data, context->layout, 1e-13);
}

TEST(AttentionAlone, samples_never_see_each_other) {
  AttentionCase data({5, 4, 6}, {4, 2, 8}, 3);
  const CpContextPtr context = alone(data.lengths, AttentionKernel::kFlash);
  const RankRun before = run_attention(data, context, at::kDouble);
  data.q.narrow(0, 5, 4).mul_(3), data.k.narrow(0, 5, 4).mul_(-2), data.v.narrow(0, 5, 4).add_(7);
  data.dout.narrow(0, 5, 4).neg_();
  const RankRun after = run_attention(data, context, at::kDouble);
  auto others = [](const at::Tensor& x) { return at::cat({x.narrow(0, 0, 5), x.narrow(0, 9, 6)}); };
  for (auto part : {&RankRun::out, &RankRun::dq, &RankRun::dk, &RankRun::dv}) {
    EXPECT_TRUE(at::equal(others(before.*part), others(after.*part)));
    EXPECT_FALSE(at::equal(before.*part, after.*part));
  }
}

TEST(AttentionAlone, takes_an_expanded_output_gradient) {
  const AttentionCase data({6}, {2, 1, 8}, 4);
  const CpContextPtr context = alone(data.lengths, AttentionKernel::kFlash);
  const at::Tensor q = data.q.clone().requires_grad_(true);
  cp_attention(q, data.k, data.v, context, 0, kScale).sum().backward();
  const at::Tensor summed = q.grad().clone();
  q.mutable_grad().zero_();
  cp_attention(q, data.k, data.v, context, 0, kScale).backward(at::ones_like(data.q));
  EXPECT_TRUE(at::equal(summed, q.grad()));
}

TEST(AttentionAlone, takes_views_of_a_fused_projection) {
  const AttentionCase data({6, 3}, {2, 2, 8}, 5);
  const CpContextPtr context = alone(data.lengths, AttentionKernel::kFlash);
  const at::Tensor fused = at::cat({data.q, data.k, data.v}, 1);
  const at::Tensor out =
      cp_attention(fused.narrow(1, 0, 2), fused.narrow(1, 2, 2), fused.narrow(1, 4, 2), context, 0, kScale);
  EXPECT_TRUE(at::equal(out, cp_attention(data.q, data.k, data.v, context, 0, kScale)));
}

TEST(AttentionAlone, takes_an_empty_pack) {
  const CpContextPtr context = alone({}, AttentionKernel::kFlash);
  const at::Tensor q = at::empty({0, 4, 8}).requires_grad_(true), k = at::empty({0, 2, 8}).requires_grad_(true);
  const at::Tensor out = cp_attention(q, k, k, context, 0, kScale);
  out.sum().backward();
  EXPECT_EQ(q.grad().sizes(), q.sizes());
  EXPECT_EQ(k.grad().sizes(), k.sizes());
}

TEST(AttentionAloneDeathTest, refuses_rows_of_another_layout) {
  const CpContextPtr context = alone({6}, AttentionKernel::kFlash);
  const at::Tensor q = at::zeros({5, 2, 8});
  EXPECT_DEATH(cp_attention(q, q, q, context, 0, kScale), "hold the rows of this rank");
  const CpContextPtr lonely = make_context({8}, CpGroup{LaneRank(0), 2, 0}, nullptr, {});
  const at::Tensor four = at::zeros({4, 2, 8});
  EXPECT_DEATH(cp_attention(four, four, four, lonely, 0, kScale), "has an exchange");
}

}  // namespace
}  // namespace ringfold
