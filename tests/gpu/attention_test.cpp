// The packed attention kernels of the GPU against the plain operations in fp32, on awkward lengths, with poison in
// every row that no block covers.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ringfold/kernels/varlen_attention.h"

namespace ringfold {
namespace {

const at::Device kGpu(at::kCUDA, 0);

// Inputs are of size one: what is far below is rounding, as the gradients of a sequence of one token, which are 0.
double relative(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor a = got.to(at::kDouble), b = want.to(at::kDouble);
  const double rounding = 1e-3 * std::sqrt(static_cast<double>(b.numel()));
  return (a - b).norm().item<double>() / std::max(b.norm().item<double>(), rounding);
}

struct Case {
  std::vector<BlockRows> blocks;
  BlockMask mask;
  int64_t q_rows, kv_rows;
};

// Sequences one after the other, with `gap` rows that belong to none after each.
Case packed(const std::vector<int64_t>& lengths, int64_t gap = 0) {
  Case result{{}, BlockMask::kCausal, 0, 0};
  for (const int64_t length : lengths) {
    result.blocks.push_back({result.q_rows, length, result.q_rows, length});
    result.q_rows += length + gap;
  }
  result.kv_rows = result.q_rows;
  return result;
}

// The two off-diagonal steps of a zigzag ring, in place.
Case halves(const std::vector<int64_t>& lengths, bool first_keys) {
  Case result = packed(lengths);
  result.mask = BlockMask::kFull;
  for (BlockRows& block : result.blocks) {
    if (first_keys) {
      block.kv_count /= 2;
    } else {
      block.q_begin += block.q_count / 2;
      block.q_count -= block.q_count / 2;
    }
  }
  return result;
}

void poison(at::Tensor& x, const std::vector<BlockRows>& blocks, bool queries) {
  at::Tensor used = at::zeros({x.size(0)}, x.options().dtype(at::kBool));
  for (const BlockRows& block : blocks) {
    if (block.q_count == 0 || block.kv_count == 0) continue;
    used.narrow(0, queries ? block.q_begin : block.kv_begin, queries ? block.q_count : block.kv_count).fill_(true);
  }
  x.masked_fill_(used.logical_not().view({-1, 1, 1}), std::numeric_limits<double>::quiet_NaN());
}

void check(VarlenKernel kernel, const HeadShape& shape, const Case& c, int calls = 1) {
  const auto options = at::TensorOptions(at::kBFloat16).device(kGpu);
  at::Tensor q = at::randn({c.q_rows, shape.heads, shape.head_dim}, options);
  at::Tensor k = at::randn({c.kv_rows, shape.kv_heads, shape.head_dim}, options);
  at::Tensor v = at::randn({c.kv_rows, shape.kv_heads, shape.head_dim}, options);
  at::Tensor dout = at::randn_like(q);
  const VarlenBlocks blocks(c.mask, c.blocks, shape, kGpu);
  for (at::Tensor* x : {&q, &dout}) poison(*x, c.blocks, true);
  for (at::Tensor* x : {&k, &v}) poison(*x, c.blocks, false);
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));

  at::Tensor out = at::zeros(q.sizes(), options.dtype(at::kFloat)), dq = at::zeros_like(out);
  at::Tensor lse = at::full({shape.heads, c.q_rows}, -INFINITY, options.dtype(at::kFloat));
  at::Tensor dk = at::zeros(k.sizes(), options.dtype(at::kFloat)), dv = at::zeros_like(dk);
  for (const BlockRows& block : blocks.rows) {
    const auto of_q = [&](const at::Tensor& x) { return x.narrow(0, block.q_begin, block.q_count).to(at::kFloat); };
    const auto of_k = [&](const at::Tensor& x) { return x.narrow(0, block.kv_begin, block.kv_count).to(at::kFloat); };
    const AttentionBlock part = reference_attention_forward(of_q(q), of_k(k), of_k(v), c.mask, scale);
    out.narrow(0, block.q_begin, block.q_count).copy_(part.out_thd);
    lse.narrow(1, block.q_begin, block.q_count).copy_(part.lse_ht);
    const AttentionGrads grads =
        reference_attention_backward(of_q(dout), of_q(q), of_k(k), of_k(v), part.out_thd, part.lse_ht, c.mask, scale);
    dq.narrow(0, block.q_begin, block.q_count).copy_(grads.dq_thd);
    dk.narrow(0, block.kv_begin, block.kv_count).copy_(grads.dk_sgd);
    dv.narrow(0, block.kv_begin, block.kv_count).copy_(grads.dv_sgd);
  }
  AttentionBlock got;
  AttentionGrads grads;
  for (int call = 0; call < calls; ++call) {
    got = varlen_attention_forward(kernel, blocks, q, k, v, scale);
    grads = varlen_attention_backward(kernel, blocks, dout, q, k, v, out.to(at::kBFloat16), lse, scale);
  }
  EXPECT_LE(relative(got.out_thd, out), 4e-3);
  EXPECT_TRUE(at::allclose(got.lse_ht, lse, 1e-4, 1e-4));
  EXPECT_LE(relative(grads.dq_thd, dq), 6e-3);
  EXPECT_LE(relative(grads.dk_sgd, dk), 6e-3);
  EXPECT_LE(relative(grads.dv_sgd, dv), 6e-3);
}

class Kernels : public testing::TestWithParam<VarlenKernel> {};
INSTANTIATE_TEST_SUITE_P(, Kernels, testing::Values(VarlenKernel::kFlash, VarlenKernel::kCudnn),
                         [](const auto& info) { return info.param == VarlenKernel::kFlash ? "flash" : "cudnn"; });

const std::vector<HeadShape> kShapes = {{32, 8, 128}, {16, 2, 256}, {4, 4, 64}, {4, 2, 64}};

TEST_P(Kernels, equal_plain_operations_on_awkward_lengths) {
  for (const HeadShape& shape : kShapes) {
    for (const auto& lengths : std::vector<std::vector<int64_t>>{{1}, {1, 17, 129, 513, 64, 2}, {1031}}) {
      SCOPED_TRACE(testing::Message() << shape.heads << " heads of " << shape.head_dim << ", first " << lengths[0]);
      check(GetParam(), shape, packed(lengths));
    }
  }
}

TEST_P(Kernels, neither_read_nor_write_rows_outside_the_blocks) {
  for (const HeadShape& shape : kShapes) check(GetParam(), shape, packed({5, 130, 64, 1, 300}, 3));
}

TEST_P(Kernels, take_halves_in_place) {
  for (const HeadShape& shape : kShapes) {
    for (const bool first_keys : {true, false}) check(GetParam(), shape, halves({2, 130, 64, 300, 1024}, first_keys));
  }
}

TEST_P(Kernels, leave_out_blocks_without_queries_or_keys) {
  Case c = halves({8, 6, 130}, true);
  c.blocks[0].kv_count = 0;
  c.blocks[1].q_count = 0;
  for (const HeadShape& shape : kShapes) check(GetParam(), shape, c);
}

// What comes back often gets a plan without counts and offsets (cudnn_attention.cpp).
TEST(Cudnn, plans_of_equal_blocks_that_come_back_equal_plain_operations) {
  constexpr int kOften = 260;
  for (const HeadShape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.heads << " heads of " << shape.head_dim);
    check(VarlenKernel::kCudnn, shape, packed({1031}), kOften);
    check(VarlenKernel::kCudnn, shape, packed({257, 257, 257}, 3), kOften);
    check(VarlenKernel::kCudnn, shape, halves({1026, 1026}, true), kOften);
    check(VarlenKernel::kCudnn, shape, halves({1026, 1026}, false), kOften);
  }
}

TEST_P(Kernels, take_more_sequences_than_a_small_plan_holds) {
  check(GetParam(), {4, 2, 64}, packed(std::vector<int64_t>(70, 19)));
}

}  // namespace
}  // namespace ringfold
