// The project's own kernels in fp32 against autograd over plain operations in fp64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ringfold/kernels/fused.h"
#include "ringfold/kernels/product.h"
#include "ringfold/kernels/rms_norm.h"
#include "ringfold/kernels/rope.h"

namespace ringfold {
namespace {

const auto kFloats = at::TensorOptions(at::kFloat).device(at::kCUDA, 0);

at::Tensor wide(const at::Tensor& x) {
  return x.detach().to(at::Device(at::kCPU), at::kDouble);
}

double relative(const at::Tensor& got, const at::Tensor& want) {
  const double norm = wide(want).norm().item<double>();
  return (wide(got) - wide(want)).norm().item<double>() / (norm == 0 ? 1 : norm);
}

TEST(FusedHeads, equal_norm_and_rotation) {
  for (const HeadShape& s : std::vector<HeadShape>{{4, 2, 64}, {8, 2, 128}, {3, 1, 256}}) {
    for (const bool norm : {true, false}) {
      SCOPED_TRACE(testing::Message() << s.head_dim << (norm ? " with norm" : " without norm"));
      const int64_t tokens = 53, width = (s.heads + 2 * s.kv_heads) * s.head_dim;
      const at::Tensor qkv = at::randn({tokens, width}, kFloats);
      const at::Tensor q_weight = at::randn({s.head_dim}, kFloats), k_weight = at::randn({s.head_dim}, kFloats);
      const at::Tensor angles = at::randn({tokens, s.head_dim / 2}, kFloats).repeat({1, 2});
      const at::Tensor cos = angles.cos(), sin = angles.sin();
      const fused::HeadNorm own = norm ? fused::HeadNorm{q_weight, k_weight, 1e-6} : fused::HeadNorm{};
      const fused::Heads got = fused::qkv_heads(qkv, s, own, cos, sin);

      const at::Tensor qkv64 = wide(qkv).requires_grad_(), qw64 = wide(q_weight).requires_grad_();
      const at::Tensor kw64 = wide(k_weight).requires_grad_();
      const auto parts = qkv64.view({tokens, -1, s.head_dim}).split_with_sizes({s.heads, s.kv_heads, s.kv_heads}, 1);
      const auto turned = [&](const at::Tensor& x, const at::Tensor& w) {
        return apply_rope(norm ? rms_norm(x, w, 1e-6) : x, wide(cos), wide(sin));
      };
      const at::Tensor q64 = turned(parts[0], qw64), k64 = turned(parts[1], kw64);
      EXPECT_LE(relative(got.q_thd, q64), 1e-6);
      EXPECT_LE(relative(got.k_tgd, k64), 1e-6);
      EXPECT_TRUE(at::equal(wide(got.v_tgd), wide(parts[2])));

      const fused::Heads grads{at::randn_like(got.q_thd), at::randn_like(got.k_tgd), at::randn_like(got.v_tgd)};
      const at::Tensor before = at::randn({s.head_dim}, kFloats);  // gradients are added to what is there
      fused::HeadNormGrads sums;
      if (norm) sums = {before.clone(), before.clone()};
      const at::Tensor dqkv = fused::qkv_heads_backward(grads, qkv, s, own, cos, sin, sums);
      ((q64 * wide(grads.q_thd)).sum() + (k64 * wide(grads.k_tgd)).sum() + (parts[2] * wide(grads.v_tgd)).sum())
          .backward();
      EXPECT_LE(relative(dqkv, qkv64.grad()), 1e-6);
      if (!norm) continue;
      EXPECT_LE(relative(sums.q_weight_d - before, qw64.grad()), 1e-6);
      EXPECT_LE(relative(sums.k_weight_d - before, kw64.grad()), 1e-6);
    }
  }
}

TEST(FusedNorm, adds_the_gradient_that_passes_by) {
  for (const int64_t width : {64, 1024, 2560, 4096, 9728, 16384}) {
    const at::Tensor x = at::randn({37, width}, kFloats), w = at::randn({width}, kFloats);
    const at::Tensor dy = at::randn_like(x), passing = at::randn_like(x);
    const at::Tensor x64 = wide(x).requires_grad_(), w64 = wide(w).requires_grad_();
    const at::Tensor y64 = rms_norm(x64, w64, 1e-6);
    y64.backward(wide(dy));
    const fused::Normed got = fused::rms_norm(x, w, 1e-6);
    EXPECT_LE(relative(got.y_nw, y64), 1e-6);
    const at::Tensor dweight = at::ones_like(w);
    const fused::NormGrads grads = fused::rms_norm_backward(dy, x, w, got.inverse_rms_n, passing, dweight, true);
    EXPECT_LE(relative(grads.y_nw, y64), 1e-6);
    EXPECT_LE(relative(grads.dx_nw, x64.grad() + wide(passing)), 1e-6);
    EXPECT_LE(relative(dweight - 1, w64.grad()), 1e-6);
  }
}

TEST(FusedSwiglu, equals_plain_operations) {
  const at::Tensor gate_up = at::randn({41, 2 * 264}, kFloats), da = at::randn({41, 264}, kFloats);
  const at::Tensor gate_up64 = wide(gate_up).requires_grad_();
  const auto halves = gate_up64.chunk(2, 1);
  const at::Tensor a64 = at::silu(halves[0]) * halves[1];
  a64.backward(wide(da));
  EXPECT_LE(relative(fused::swiglu(gate_up), a64), 1e-6);
  const fused::SwigluGrads grads = fused::swiglu_backward(da, gate_up);
  EXPECT_LE(relative(grads.dgate_up, gate_up64.grad()), 1e-6);
  EXPECT_LE(relative(grads.a_nw, a64), 1e-6);
}

// Factors of bf16 are exact in fp64; the sums are fp32, by the tensor cores, which drop the last bits.
TEST(Product, equals_fp64_in_every_layout) {
  const auto halves = kFloats.dtype(at::kBFloat16);
  struct Sizes {
    int64_t m, k, n;
  };
  for (const Sizes& s :
       std::vector<Sizes>{{1, 64, 72}, {53, 2560, 264}, {257, 8, 1001}, {640, 4096, 2560}, {0, 64, 8}, {7, 0, 8}}) {
    SCOPED_TRACE(testing::Message() << s.m << " x " << s.k << " x " << s.n);
    const at::Tensor a = at::randn({s.m, s.k}, halves), b = at::randn({s.k, s.n}, halves);
    const at::Tensor a_turned = a.t().contiguous().t(), b_turned = b.t().contiguous().t();
    const at::Tensor want = at::mm(wide(a), wide(b));
    for (const at::Tensor& left : {a, a_turned}) {
      for (const at::Tensor& right : {b, b_turned}) {
        EXPECT_LE(relative(wide_product(left, right), want), 1e-5);
        EXPECT_LE(relative(product(left, right), want), 3e-3);  // rounded to bf16: 2^-9 at most
        const at::Tensor sum = at::randn({s.m, s.n}, kFloats), before = sum.clone();
        add_product(sum, left, right);
        EXPECT_LE(relative(sum, wide(before) + want), 1e-5);
        const at::Tensor addend = at::randn({s.m, s.n}, halves), kept = addend.clone();
        EXPECT_LE(relative(product_plus(addend, left, right), wide(addend) + want), 3e-3);
        EXPECT_TRUE(at::equal(addend, kept));
      }
    }
  }
}

// Rows further apart than they are long, as the gradient of logits lies over the logits.
TEST(Product, takes_rows_with_gaps) {
  const auto halves = kFloats.dtype(at::kBFloat16);
  const at::Tensor a = at::randn({40, 2 * 96}, halves).narrow(1, 0, 96), b = at::randn({96, 48}, halves);
  EXPECT_LE(relative(wide_product(a, b), at::mm(wide(a), wide(b))), 1e-6);
  const at::Tensor sum = at::zeros({96, 48}, kFloats), right = at::randn({40, 48}, halves);
  add_product(sum, a.t(), right);
  EXPECT_LE(relative(sum, at::mm(wide(a).t(), wide(right))), 1e-6);
}

TEST(SumOfSquares, equals_fp64_on_any_count) {
  for (const int64_t count : {1, 3, 4, 1025, 3'000'001}) {
    const at::Tensor x = at::randn({count}, kFloats);
    const at::Tensor want = wide(x).square().sum();
    EXPECT_LE(relative(fused::sum_of_squares(x), want), 1e-14);
  }
}

TEST(FusedMerge, equals_plain_operations_with_empty_rows) {
  const int64_t tokens = 45, heads = 3, dim = 64;
  const auto block = [&](int64_t first_empty) {
    const at::Tensor lse_th = at::randn({tokens, heads}, kFloats);
    lse_th.slice(0, first_empty, first_empty + 9).fill_(-INFINITY);
    const at::Tensor out = at::randn({tokens, heads, dim}, kFloats);
    out.slice(0, first_empty, first_empty + 9).zero_();
    return AttentionBlock{out, lse_th.t()};
  };
  // Rows 20..24 are empty on both sides.
  AttentionBlock got = block(16);
  const AttentionBlock part = block(20);
  AttentionBlock want{wide(got.out_thd), wide(got.lse_ht)};
  merge_attention_(want, {wide(part.out_thd), wide(part.lse_ht)});
  merge_attention_(got, part);
  EXPECT_LE(relative(got.out_thd, want.out_thd), 1e-6);
  EXPECT_TRUE(at::allclose(wide(got.lse_ht), want.lse_ht, 1e-6, 1e-6));
}

}  // namespace
}  // namespace ringfold
