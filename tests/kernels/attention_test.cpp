#include "ringfold/kernels/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ringfold {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Shape {
  int64_t t, s, heads, kv_heads, head_dim;
  BlockMask mask;
};

struct Inputs {
  at::Tensor q, k, v, dout;
};

Inputs random_inputs(const Shape& shape, at::ScalarType dtype, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  auto draw = [&](int64_t tokens, int64_t heads) {
    return at::randn({tokens, heads, shape.head_dim}, generator, at::TensorOptions().dtype(at::kDouble)).to(dtype);
  };
  return {draw(shape.t, shape.heads), draw(shape.s, shape.kv_heads), draw(shape.s, shape.kv_heads),
          draw(shape.t, shape.heads)};
}

double relative_error(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  if (want.numel() == 0) return 0;
  const double norm = want.to(at::kDouble).norm().item<double>();
  const double error = (got.to(at::kDouble) - want.to(at::kDouble)).norm().item<double>();
  return norm == 0 ? error : error / norm;
}

// The definition, one number at a time.
AttentionBlock by_hand(const Inputs& in, BlockMask mask, double scale) {
  const int64_t t = in.q.size(0), s = in.k.size(0), heads = in.q.size(1), d = in.q.size(2);
  const int64_t per_kv = heads / in.k.size(1);
  AttentionBlock result{at::zeros({t, heads, d}, at::kDouble), at::zeros({heads, t}, at::kDouble)};
  auto q = in.q.accessor<double, 3>(), k = in.k.accessor<double, 3>(), v = in.v.accessor<double, 3>();
  auto out = result.out_thd.accessor<double, 3>();
  auto lse = result.lse_ht.accessor<double, 2>();
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < t; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < (mask == BlockMask::kCausal ? i + 1 : s); ++j) {
        double dot = 0;
        for (int64_t x = 0; x < d; ++x) dot += q[i][h][x] * k[j][h / per_kv][x];
        const double weight = std::exp(scale * dot);
        sum += weight;
        for (int64_t x = 0; x < d; ++x) out[i][h][x] += weight * v[j][h / per_kv][x];
      }
      for (int64_t x = 0; x < d; ++x) out[i][h][x] /= sum;
      lse[h][i] = std::log(sum);
    }
  }
  return result;
}

std::vector<Shape> awkward_shapes() {
  std::vector<Shape> shapes;
  for (int64_t head_dim : {4, 8, 16, 64}) {
    for (int64_t kv_heads : {1, 2, 4}) {
      for (int64_t t : {1, 2, 3, 7, 33, 65}) shapes.push_back({t, t, 4, kv_heads, head_dim, BlockMask::kCausal});
      for (auto [t, s] : {std::pair<int64_t, int64_t>{1, 1}, {1, 2}, {3, 1}, {2, 5}, {17, 3}, {5, 67}, {64, 129}}) {
        shapes.push_back({t, s, 4, kv_heads, head_dim, BlockMask::kFull});
      }
    }
  }
  shapes.push_back({5, 5, 3, 1, 6, BlockMask::kCausal});      // nothing a multiple of a vector
  shapes.push_back({777, 777, 2, 1, 8, BlockMask::kCausal});  // several blocks of the fused operator
  shapes.push_back({300, 1100, 2, 2, 8, BlockMask::kFull});
  return shapes;
}

std::string name_of(const Shape& shape) {
  return "t " + std::to_string(shape.t) + ", s " + std::to_string(shape.s) + ", heads " + std::to_string(shape.heads) +
         ":" + std::to_string(shape.kv_heads) + ", head dim " + std::to_string(shape.head_dim) +
         (shape.mask == BlockMask::kCausal ? ", causal" : ", full");
}

TEST(Attention, reference_is_the_definition) {
  at::set_num_threads(1);
  for (const Shape& shape : awkward_shapes()) {
    if (shape.t * shape.s > 5000) continue;
    SCOPED_TRACE(name_of(shape));
    const Inputs in = random_inputs(shape, at::kDouble, 1);
    const AttentionBlock want = by_hand(in, shape.mask, 0.3);
    const AttentionBlock got = reference_attention_forward(in.q, in.k, in.v, shape.mask, 0.3);
    EXPECT_LT(relative_error(got.out_thd, want.out_thd), 1e-13);
    EXPECT_LT((got.lse_ht - want.lse_ht).abs().max().item<double>(), 1e-13);
  }
}

// Central differences of <out, dout> in a random direction of q, k and v.
TEST(Attention, reference_backward_is_the_derivative) {
  at::set_num_threads(1);
  for (BlockMask mask : {BlockMask::kCausal, BlockMask::kFull}) {
    const Shape shape{6, 6, 4, 2, 4, mask};
    const Inputs in = random_inputs(shape, at::kDouble, 2), direction = random_inputs(shape, at::kDouble, 3);
    auto value = [&](double step) {
      const AttentionBlock moved = reference_attention_forward(in.q + step * direction.q, in.k + step * direction.k,
                                                               in.v + step * direction.v, mask, 0.5);
      return (moved.out_thd * in.dout).sum().item<double>();
    };
    const AttentionBlock forward = reference_attention_forward(in.q, in.k, in.v, mask, 0.5);
    const AttentionGrads grads =
        reference_attention_backward(in.dout, in.q, in.k, in.v, forward.out_thd, forward.lse_ht, mask, 0.5);
    const double slope = (grads.dq_thd * direction.q).sum().item<double>() +
                         (grads.dk_sgd * direction.k).sum().item<double>() +
                         (grads.dv_sgd * direction.v).sum().item<double>();
    EXPECT_NEAR(slope, (value(1e-5) - value(-1e-5)) / 2e-5, 1e-7);
  }
}

TEST(Attention, flash_equals_reference) {
  at::set_num_threads(1);
  for (at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const double tolerance = dtype == at::kDouble ? 1e-12 : 2e-6;
    for (const Shape& shape : awkward_shapes()) {
      SCOPED_TRACE(name_of(shape) + (dtype == at::kDouble ? ", fp64" : ", fp32"));
      const Inputs in = random_inputs(shape, at::kDouble, 4);
      const Inputs typed = {in.q.to(dtype), in.k.to(dtype), in.v.to(dtype), in.dout.to(dtype)};
      const AttentionBlock want = reference_attention_forward(in.q, in.k, in.v, shape.mask, 0.3);
      const AttentionBlock got = flash_attention_forward(typed.q, typed.k, typed.v, shape.mask, 0.3);
      EXPECT_EQ(got.out_thd.scalar_type(), dtype);
      EXPECT_EQ(got.lse_ht.scalar_type(), dtype);
      EXPECT_LT(relative_error(got.out_thd, want.out_thd), tolerance);
      EXPECT_LT(relative_error(got.lse_ht, want.lse_ht), tolerance);

      const AttentionGrads want_grads =
          reference_attention_backward(in.dout, in.q, in.k, in.v, want.out_thd, want.lse_ht, shape.mask, 0.3);
      const AttentionGrads got_grads =
          flash_attention_backward(typed.dout, typed.q, typed.k, typed.v, got.out_thd, got.lse_ht, shape.mask, 0.3);
      // dq and dk of one key are exactly 0: compare with the size of the other gradients.
      const double norm = want_grads.dv_sgd.norm().item<double>();
      EXPECT_LT((got_grads.dq_thd.to(at::kDouble) - want_grads.dq_thd).norm().item<double>(), tolerance * norm * 4);
      EXPECT_LT((got_grads.dk_sgd.to(at::kDouble) - want_grads.dk_sgd).norm().item<double>(), tolerance * norm * 4);
      EXPECT_LT(relative_error(got_grads.dv_sgd, want_grads.dv_sgd), tolerance);
    }
  }
}

TEST(Attention, flash_takes_views_of_a_pack) {
  at::set_num_threads(1);
  const Inputs in = random_inputs({20, 20, 4, 2, 8, BlockMask::kFull}, at::kDouble, 5);
  const at::Tensor kv = at::stack({in.k, in.v});
  auto rows = [](const at::Tensor& x) { return x.narrow(0, 3, 7); };
  const Inputs copies = {rows(in.q).clone(), rows(in.k).clone(), rows(in.v).clone(), rows(in.dout).clone()};
  for (BlockMask mask : {BlockMask::kCausal, BlockMask::kFull}) {
    const AttentionBlock want = flash_attention_forward(copies.q, copies.k, copies.v, mask, 0.3);
    const AttentionBlock got = flash_attention_forward(rows(in.q), rows(kv[0]), rows(kv[1]), mask, 0.3);
    EXPECT_TRUE(at::equal(got.out_thd, want.out_thd));
    EXPECT_TRUE(at::equal(got.lse_ht, want.lse_ht));
    const AttentionGrads want_grads =
        flash_attention_backward(copies.dout, copies.q, copies.k, copies.v, want.out_thd, want.lse_ht, mask, 0.3);
    // A wide accumulator's slice, as the schemes hand it over.
    at::Tensor wide_lse = at::zeros({4, 20}, at::kDouble);
    wide_lse.narrow(1, 3, 7).copy_(want.lse_ht);
    const AttentionGrads got_grads = flash_attention_backward(rows(in.dout), rows(in.q), rows(kv[0]), rows(kv[1]),
                                                              got.out_thd, wide_lse.narrow(1, 3, 7), mask, 0.3);
    EXPECT_TRUE(at::equal(got_grads.dq_thd, want_grads.dq_thd));
    EXPECT_TRUE(at::equal(got_grads.dk_sgd, want_grads.dk_sgd));
    EXPECT_TRUE(at::equal(got_grads.dv_sgd, want_grads.dv_sgd));
  }
}

TEST(Attention, flash_takes_a_strided_head_dim) {
  const Inputs in = random_inputs({5, 5, 2, 2, 8, BlockMask::kFull}, at::kDouble, 8);
  auto strided = [](const at::Tensor& x) { return x.transpose(0, 2).contiguous().transpose(0, 2); };
  EXPECT_NE(strided(in.q).stride(2), 1);
  const AttentionBlock want = flash_attention_forward(in.q, in.k, in.v, BlockMask::kCausal, 0.3);
  const AttentionBlock got =
      flash_attention_forward(strided(in.q), strided(in.k), strided(in.v), BlockMask::kCausal, 0.3);
  EXPECT_TRUE(at::equal(got.out_thd, want.out_thd));
  const AttentionGrads want_grads =
      flash_attention_backward(in.dout, in.q, in.k, in.v, want.out_thd, want.lse_ht, BlockMask::kCausal, 0.3);
  const AttentionGrads got_grads =
      flash_attention_backward(strided(in.dout), strided(in.q), strided(in.k), strided(in.v), strided(got.out_thd),
                               got.lse_ht, BlockMask::kCausal, 0.3);
  EXPECT_TRUE(at::equal(got_grads.dq_thd, want_grads.dq_thd));
  EXPECT_TRUE(at::equal(got_grads.dk_sgd, want_grads.dk_sgd));
  EXPECT_TRUE(at::equal(got_grads.dv_sgd, want_grads.dv_sgd));
}

// The ring's promise: keys cut into blocks, merged forward, block gradients add up to the whole ones.
TEST(Attention, blocks_merge_to_the_whole) {
  at::set_num_threads(1);
  using Forward = decltype(&flash_attention_forward);
  using Backward = decltype(&flash_attention_backward);
  for (auto [forward, backward] : {std::pair<Forward, Backward>{flash_attention_forward, flash_attention_backward},
                                   {reference_attention_forward, reference_attention_backward}}) {
    for (auto [dtype, tolerance] : {std::pair<at::ScalarType, double>{at::kDouble, 1e-13}, {at::kFloat, 2e-6}}) {
      const Shape shape{9, 31, 4, 2, 8, BlockMask::kFull};
      const Inputs in = random_inputs(shape, dtype, 6);
      const AttentionBlock whole = forward(in.q, in.k, in.v, BlockMask::kFull, 0.3);
      const AttentionGrads whole_grads =
          backward(in.dout, in.q, in.k, in.v, whole.out_thd, whole.lse_ht, BlockMask::kFull, 0.3);

      AttentionBlock merged{at::zeros_like(in.q), at::full({4, 9}, -kInf, in.q.options())};
      at::Tensor dq = at::zeros_like(in.q);
      const std::vector<int64_t> cuts = {0, 1, 4, 30, 31};
      auto block_of = [&](const at::Tensor& x, size_t b) { return x.narrow(0, cuts[b], cuts[b + 1] - cuts[b]); };
      for (size_t b = 0; b + 1 < cuts.size(); ++b) {
        merge_attention_(merged, forward(in.q, block_of(in.k, b), block_of(in.v, b), BlockMask::kFull, 0.3));
      }
      EXPECT_LT(relative_error(merged.out_thd, whole.out_thd), tolerance);
      EXPECT_LT(relative_error(merged.lse_ht, whole.lse_ht), tolerance);
      for (size_t b = 0; b + 1 < cuts.size(); ++b) {
        const AttentionGrads part = backward(in.dout, in.q, block_of(in.k, b), block_of(in.v, b), merged.out_thd,
                                             merged.lse_ht, BlockMask::kFull, 0.3);
        dq += part.dq_thd;
        EXPECT_LT(relative_error(part.dk_sgd, block_of(whole_grads.dk_sgd, b)), 10 * tolerance);
        EXPECT_LT(relative_error(part.dv_sgd, block_of(whole_grads.dv_sgd, b)), 10 * tolerance);
      }
      EXPECT_LT(relative_error(dq, whole_grads.dq_thd), 10 * tolerance);
    }
  }
}

TEST(Attention, merge_keeps_empty_rows_empty) {
  AttentionBlock accumulated{at::zeros({2, 1, 3}, at::kDouble), at::full({1, 2}, -kInf, at::kDouble)};
  AttentionBlock block{at::zeros({2, 1, 3}, at::kDouble), at::full({1, 2}, -kInf, at::kDouble)};
  block.out_thd[1].fill_(2.0);
  block.lse_ht[0][1] = 0.5;
  merge_attention_(accumulated, block);
  EXPECT_TRUE(at::equal(accumulated.out_thd, block.out_thd));
  EXPECT_TRUE(at::equal(accumulated.lse_ht, block.lse_ht));
  merge_attention_(accumulated, {at::zeros({2, 1, 3}, at::kDouble), at::full({1, 2}, -kInf, at::kDouble)});
  EXPECT_TRUE(at::equal(accumulated.out_thd, block.out_thd));
  EXPECT_TRUE(at::equal(accumulated.lse_ht, block.lse_ht));
}

TEST(Attention, merge_survives_far_apart_scores) {
  AttentionBlock low{at::full({1, 1, 2}, 3.0, at::kFloat), at::full({1, 1}, -1e4, at::kFloat)};
  const AttentionBlock high{at::full({1, 1, 2}, 5.0, at::kFloat), at::full({1, 1}, 1e4, at::kFloat)};
  merge_attention_(low, high);
  EXPECT_TRUE(at::equal(low.out_thd, high.out_thd));
  EXPECT_TRUE(at::equal(low.lse_ht, high.lse_ht));
}

TEST(Attention, without_keys_is_empty) {
  for (auto forward : {flash_attention_forward, reference_attention_forward}) {
    const Inputs in = random_inputs({3, 0, 4, 2, 8, BlockMask::kFull}, at::kDouble, 7);
    const AttentionBlock empty = forward(in.q, in.k, in.v, BlockMask::kFull, 0.3);
    EXPECT_TRUE(at::equal(empty.out_thd, at::zeros_like(in.q)));
    EXPECT_TRUE(at::equal(empty.lse_ht, at::full({4, 3}, -kInf, at::kDouble)));
  }
}

}  // namespace
}  // namespace ringfold
