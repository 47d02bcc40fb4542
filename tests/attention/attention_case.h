// One pack with known answers: full samples, the rows of any rank, and the result of plain attention sample by sample.
// Legend: t tokens of one sample or rows of one rank, h query heads, g KV heads, d head dim.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ringfold/attention/attention.h"
#include "ringfold/kernels/attention.h"
#include "ringfold/shard/split.h"

namespace ringfold {

using Lengths = std::vector<int64_t>;

struct Heads {
  int64_t query = 4, kv = 2, dim = 8;
};

inline constexpr double kScale = 0.35;

// Results and inputs are held in fp64 over all samples, concatenated: row cu_real[sample] + position.
class AttentionCase {
 public:
  AttentionCase(Lengths lengths_in, Heads heads, uint64_t seed) : lengths(std::move(lengths_in)) {
    int64_t tokens = 0;
    for (int64_t length : lengths) tokens += length;
    at::Generator generator = at::detail::createCPUGenerator(seed);
    auto draw = [&](int64_t count) {
      return at::randn({tokens, count, heads.dim}, generator, at::TensorOptions().dtype(at::kDouble));
    };
    q = draw(heads.query), k = draw(heads.kv), v = draw(heads.kv), dout = draw(heads.query);
    std::vector<at::Tensor> outs, lses, dqs, dks, dvs;
    int64_t begin = 0;
    for (int64_t length : lengths) {
      auto rows = [&](const at::Tensor& x) { return x.narrow(0, begin, length); };
      const auto forward = reference_attention_forward(rows(q), rows(k), rows(v), BlockMask::kCausal, kScale);
      const auto grads = reference_attention_backward(rows(dout), rows(q), rows(k), rows(v), forward.out_thd,
                                                      forward.lse_ht, BlockMask::kCausal, kScale);
      outs.push_back(forward.out_thd), lses.push_back(forward.lse_ht.t());
      dqs.push_back(grads.dq_thd), dks.push_back(grads.dk_sgd), dvs.push_back(grads.dv_sgd);
      begin += length;
    }
    out = at::cat(outs), lse_th = at::cat(lses), dq = at::cat(dqs), dk = at::cat(dks), dv = at::cat(dvs);
  }

  Lengths lengths;
  at::Tensor q, k, v, dout;
  at::Tensor out, lse_th, dq, dk, dv;
};

// Row of the concatenated samples for each local row; -1 for pads.
inline at::Tensor full_rows(const PackLayout& layout) {
  std::vector<int64_t> rows;
  for (const RowOrigin& origin : row_origins(layout)) {
    rows.push_back(origin.position < 0 ? -1 : layout.cu_real()[origin.sample] + origin.position);
  }
  return at::tensor(rows, at::kLong);
}

// The rows of one rank; its pad rows hold `pad`.
inline at::Tensor local_rows(const at::Tensor& full, const PackLayout& layout, at::ScalarType dtype, double pad) {
  const at::Tensor rows = full_rows(layout);
  at::Tensor local = full.index_select(0, rows.clamp_min(0));
  local.index_fill_(0, (rows < 0).nonzero().squeeze(1), pad);
  return local.to(dtype).contiguous();
}

struct RankRun {
  at::Tensor out, lse_ht, dq, dk, dv;
};

// Forward and backward of one rank. Pad rows of q, k and v hold `pad`; those of dout are 0, as a loss leaves them.
inline RankRun run_attention(const AttentionCase& data, const CpContextPtr& context, at::ScalarType dtype,
                             double pad = 0) {
  auto leaf = [&](const at::Tensor& full) {
    return local_rows(full, context->layout, dtype, pad).requires_grad_(true);
  };
  const at::Tensor q = leaf(data.q), k = leaf(data.k), v = leaf(data.v);
  const AttentionWithLse inspected = cp_attention_forward(q, k, v, *context, 0, kScale);
  const at::Tensor out = cp_attention(q, k, v, context, 0, kScale);
  EXPECT_TRUE(at::equal(inspected.out_thd, out));
  out.backward(local_rows(data.dout, context->layout, dtype, 0));
  return {out.detach(), inspected.lse_ht, q.grad(), k.grad(), v.grad()};
}

// Largest difference on real rows, relative to the largest value wanted anywhere in the pack, or to 1, the size of the
// inputs (dq and dk of a one-token sample are exactly 0).
inline double error_on_real_rows(const at::Tensor& got, const at::Tensor& want_full, const PackLayout& layout) {
  const at::Tensor rows = full_rows(layout);
  const at::Tensor real = (rows >= 0).nonzero().squeeze(1);
  if (real.numel() == 0) return 0;
  const at::Tensor difference =
      got.to(at::kDouble).index_select(0, real) - want_full.index_select(0, rows.index_select(0, real));
  const double error = difference.abs().max().item<double>();
  return error / std::max(want_full.abs().max().item<double>(), 1.0);
}

inline void expect_equals_one_rank(const RankRun& run, const AttentionCase& data, const PackLayout& layout,
                                   double tolerance) {
  EXPECT_LE(error_on_real_rows(run.out, data.out, layout), tolerance) << "out";
  EXPECT_LE(error_on_real_rows(run.lse_ht.t(), data.lse_th, layout), tolerance) << "lse";
  EXPECT_LE(error_on_real_rows(run.dq, data.dq, layout), tolerance) << "dq";
  EXPECT_LE(error_on_real_rows(run.dk, data.dk, layout), tolerance) << "dk";
  EXPECT_LE(error_on_real_rows(run.dv, data.dv, layout), tolerance) << "dv";
  const at::Tensor pads = (full_rows(layout) < 0).nonzero().squeeze(1);
  for (const at::Tensor& x : {run.out, run.dq, run.dk, run.dv}) {
    EXPECT_EQ(x.index_select(0, pads).count_nonzero().item<int64_t>(), 0) << "pad rows";
  }
}

struct Mode {
  CpScheme scheme = CpScheme::kRing;
  AttentionKernel kernel = AttentionKernel::kFlash;
};

inline const std::vector<Mode> kModes = {
    {CpScheme::kRing, AttentionKernel::kFlash},        {CpScheme::kRing, AttentionKernel::kReference},
    {CpScheme::kAllGatherKv, AttentionKernel::kFlash}, {CpScheme::kAllGatherKv, AttentionKernel::kReference},
    {CpScheme::kAllToAll, AttentionKernel::kFlash},    {CpScheme::kAllToAll, AttentionKernel::kReference}};

// Those that the heads allow in groups of c.
inline std::vector<Mode> modes_for(Heads heads, int c) {
  std::vector<Mode> modes;
  for (const Mode& mode : kModes) {
    const bool splits = heads.query % c == 0 && (heads.kv % c == 0 || c % heads.kv == 0);
    if (splits || mode.scheme != CpScheme::kAllToAll) modes.push_back(mode);
  }
  return modes;
}

inline CpContextPtr make_context(const Lengths& lengths, const CpGroup& group, Exchange* exchange, Mode mode) {
  auto context = std::make_shared<CpContext>(group, PackLayout(lengths, group.size, group.index));
  context->exchange = exchange;
  context->scheme = mode.scheme;
  context->kernel = mode.kernel;
  return context;
}

inline std::string describe(const Lengths& lengths, const CpGroup& group, Mode mode) {
  std::string text = "c " + std::to_string(group.size) + ", rank " + std::to_string(group.index) +
                     (mode.scheme == CpScheme::kRing          ? ", ring"
                      : mode.scheme == CpScheme::kAllGatherKv ? ", all-gather"
                                                              : ", all-to-all") +
                     (mode.kernel == AttentionKernel::kFlash ? ", flash" : ", reference") + ", lengths";
  for (int64_t length : lengths) text += " " + std::to_string(length);
  return text;
}

}  // namespace ringfold
