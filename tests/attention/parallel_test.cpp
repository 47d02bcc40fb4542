// Every group size, scheme and kernel against plain attention on one rank: output, log-sum-exp, gradients.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <mutex>

#include "attention/attention_case.h"
#include "dist/thread_ranks.h"

namespace ringfold {
namespace {

constexpr int kWorld = 8;

std::vector<Lengths> awkward_lengths(int c) {
  return {{1}, {2}, {3}, {1, 2, 3}, {2, 3, 5, 7, 11, 13, 17, 37}, {2 * c - 1, 2 * c, 2 * c + 1}, {1, 3, 211, 2, 1}};
}

void expect_parity(RankContext& at, int c, const Lengths& lengths, Heads heads, const std::vector<Mode>& modes,
                   at::ScalarType dtype = at::kDouble) {
  const AttentionCase data(lengths, heads, 17 + lengths.size());
  for (Mode mode : modes) {
    const CpContextPtr context = make_context(lengths, at.group(c), &at.exchange, mode);
    SCOPED_TRACE(describe(lengths, context->group, mode));
    expect_equals_one_rank(run_attention(data, context, dtype), data, context->layout,
                           dtype == at::kDouble ? 1e-13 : 2e-6);
  }
}

void expect_parity(RankContext& at, int c, const Lengths& lengths, Heads heads) {
  expect_parity(at, c, lengths, heads, modes_for(heads, c));
}

class AttentionParallel : public testing::TestWithParam<int> {};

TEST_P(AttentionParallel, equals_one_rank_on_awkward_lengths) {
  const int c = GetParam();
  run_ranks(c, [&](RankContext& at) {
    for (const Lengths& lengths : awkward_lengths(c)) {
      expect_parity(at, c, lengths, {4, 2, 8});
      expect_parity(at, c, lengths, {4, 4, 4}, {kModes[0], kModes[3]});
      expect_parity(at, c, lengths, {4, 2, 8}, {kModes[0], kModes[2]}, at::kFloat);
    }
  });
}

// As many KV heads as ranks, more, fewer, and one: a rank's query heads meet theirs, and what several ranks found for
// one KV head adds up.
TEST_P(AttentionParallel, all_to_all_splits_grouped_heads_both_ways) {
  const int c = GetParam();
  run_ranks(c, [&](RankContext& at) {
    for (const Heads heads : {Heads{8, 8, 4}, Heads{16, 8, 4}, Heads{16, 16, 6}, Heads{8, 4, 8}, Heads{8, 2, 8},
                              Heads{8, 1, 4}, Heads{24, 8, 4}}) {
      for (const Lengths& lengths : {Lengths{1}, Lengths{2, 3, 5, 7, 11, 13, 17, 37}, Lengths{2 * c - 1, 2 * c + 1}}) {
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
          expect_parity(at, c, lengths, heads, {kModes[4], kModes[5]}, dtype);
        }
      }
    }
  });
}

TEST_P(AttentionParallel, all_to_all_on_awkward_lengths) {
  const int c = GetParam();
  run_ranks(c, [&](RankContext& at) {
    for (const Lengths& lengths : awkward_lengths(c)) {
      expect_parity(at, c, lengths, {8, 4, 8}, {kModes[4], kModes[5]});
      expect_parity(at, c, lengths, {8, 2, 8}, {kModes[4], kModes[5]}, at::kFloat);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(GroupSize, AttentionParallel, testing::Values(2, 4, 8),
                         [](const auto& size) { return std::to_string(size.param); });

// Case N9: document borders hold in every ring step.
TEST(AttentionParallel, keeps_documents_apart) {
  run_ranks(2, [&](RankContext& at) { expect_parity(at, 2, {600, 203, 197}, {2, 1, 4}); });
}

// Case N1: the real tokens of lengths that are no multiple of 2c.
TEST(AttentionParallel, loses_no_token_to_padding) {
  run_ranks(4, [&](RankContext& at) {
    if (at.rank.value() < 2) expect_parity(at, 2, {7}, {2, 2, 4});
    expect_parity(at, 4, {299}, {2, 2, 4});
  });
}

// Groups of different sizes at the same time in one lane, pack after pack, without a barrier between them.
TEST(AttentionParallel, runs_packs_of_changing_groups_one_after_another) {
  struct Pack {
    int first, size;
    Lengths lengths;
  };
  const std::vector<std::vector<Pack>> micro_steps = {
      {{0, 4, {37, 5}}, {4, 2, {19, 3}}, {6, 1, {11}}, {7, 1, {4, 4, 1}}},
      {{0, 8, {101, 1}}},
      {{0, 2, {9}}, {2, 2, {31, 2}}, {4, 4, {65, 3}}},
      {{0, 1, {6}}, {1, 1, {7, 2}}, {2, 2, {1}}, {4, 4, {2}}},
      {{0, 8, {3}}},
      {{0, 4, {16}}, {4, 4, {50, 7}}}};
  for (CpScheme scheme : {CpScheme::kRing, CpScheme::kAllGatherKv, CpScheme::kAllToAll}) {
    run_ranks(kWorld, [&](RankContext& at) {
      const int rank = at.rank.value();
      for (int repeat = 0; repeat < 3; ++repeat) {
        for (size_t m = 0; m < micro_steps.size(); ++m) {
          for (const Pack& pack : micro_steps[m]) {
            if (rank < pack.first || rank >= pack.first + pack.size) continue;
            const AttentionCase data(pack.lengths, {8, 2, 8}, 100 * m + pack.first);
            const CpGroup group{LaneRank(pack.first), pack.size, rank - pack.first};
            const Mode mode{scheme, AttentionKernel::kFlash};
            const CpContextPtr context =
                make_context(pack.lengths, group, pack.size == 1 ? nullptr : &at.exchange, mode);
            SCOPED_TRACE("micro-step " + std::to_string(m) + ", " + describe(pack.lengths, group, mode));
            expect_equals_one_rank(run_attention(data, context, at::kDouble), data, context->layout, 1e-13);
          }
        }
      }
    });
  }
}

// Whatever pad rows hold, real rows do not change by a bit and no NaN comes out.
TEST(AttentionParallel, never_reads_pads) {
  const Lengths lengths = {1, 5, 13, 3};
  const AttentionCase data(lengths, {4, 2, 8}, 5);
  run_ranks(4, [&](RankContext& at) {
    for (Mode mode : kModes) {
      const CpContextPtr context = make_context(lengths, at.group(4), &at.exchange, mode);
      SCOPED_TRACE(describe(lengths, context->group, mode));
      EXPECT_TRUE(context->layout.has_padding());
      for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
        const RankRun clean = run_attention(data, context, dtype, 0);
        for (double junk : {1e30, -3e38, std::nan(""), std::numeric_limits<double>::infinity()}) {
          const RankRun dirty = run_attention(data, context, dtype, junk);
          for (auto part : {&RankRun::out, &RankRun::lse_ht, &RankRun::dq, &RankRun::dk, &RankRun::dv}) {
            EXPECT_TRUE(at::equal(clean.*part, dirty.*part)) << junk;
          }
        }
      }
    }
  });
}

TEST(AttentionParallel, gives_a_rank_of_only_pads_zero_gradients) {
  const AttentionCase data({1}, {4, 2, 4}, 6);
  run_ranks(4, [&](RankContext& at) {
    for (Mode mode : kModes) {
      const CpContextPtr context = make_context(data.lengths, at.group(4), &at.exchange, mode);
      const RankRun run = run_attention(data, context, at::kDouble, 1e30);
      for (const at::Tensor& grad : {run.dq, run.dk, run.dv}) {
        EXPECT_TRUE(grad.defined());
        if (at.rank.value() == 0) continue;
        EXPECT_EQ(grad.count_nonzero().item<int64_t>(), 0);
      }
    }
  });
}

TEST(AttentionParallel, gives_the_same_bits_twice) {
  const Lengths lengths = {61, 7, 2};
  const AttentionCase data(lengths, {4, 2, 8}, 7);
  for (Mode mode : kModes) {
    std::array<std::array<RankRun, 4>, 2> runs;
    for (auto& run : runs) {
      run_ranks(4, [&](RankContext& at) {
        run[at.rank.value()] = run_attention(data, make_context(lengths, at.group(4), &at.exchange, mode), at::kFloat);
      });
    }
    for (int rank = 0; rank < 4; ++rank) {
      for (auto part : {&RankRun::out, &RankRun::lse_ht, &RankRun::dq, &RankRun::dk, &RankRun::dv}) {
        EXPECT_TRUE(at::equal(runs[0][rank].*part, runs[1][rank].*part));
      }
    }
  }
}

// Two layers, and two micro-steps of different groups whose backwards come after both forwards.
struct Stacked {
  at::Tensor q, k, v, loss;
};

Stacked two_layers(const AttentionCase& data, const CpContextPtr& context) {
  auto leaf = [&](const at::Tensor& full) {
    return local_rows(full, context->layout, at::kDouble, 0).requires_grad_(true);
  };
  Stacked s{leaf(data.q), leaf(data.k), leaf(data.v), {}};
  const at::Tensor hidden = cp_attention(s.q, s.k, s.v, context, 0, kScale);
  const at::Tensor out = cp_attention(hidden * 2, s.k + hidden, s.v - hidden, context, 1, kScale);
  s.loss = (out * local_rows(data.dout, context->layout, at::kDouble, 0)).sum();
  return s;
}

void expect_same_leaf_grads(const Stacked& got, const Stacked& want, const PackLayout& layout) {
  EXPECT_LE(error_on_real_rows(got.q.grad(), want.q.grad(), layout), 1e-13);
  EXPECT_LE(error_on_real_rows(got.k.grad(), want.k.grad(), layout), 1e-13);
  EXPECT_LE(error_on_real_rows(got.v.grad(), want.v.grad(), layout), 1e-13);
}

TEST(AttentionParallel, backs_up_through_layers_and_groups) {
  const AttentionCase wide({23, 9}, {4, 4, 8}, 8), narrow({5, 12}, {4, 4, 8}, 9);
  const CpGroup alone;
  const Stacked want_wide = two_layers(wide, make_context(wide.lengths, alone, nullptr, {}));
  const Stacked want_narrow = two_layers(narrow, make_context(narrow.lengths, alone, nullptr, {}));
  want_wide.loss.backward();
  want_narrow.loss.backward();
  run_ranks(4, [&](RankContext& at) {
    for (Mode mode : kModes) {
      const CpContextPtr context4 = make_context(wide.lengths, at.group(4), &at.exchange, mode);
      const CpContextPtr context2 = make_context(narrow.lengths, at.group(2), &at.exchange, mode);
      const Stacked got_wide = two_layers(wide, context4);
      const Stacked got_narrow = two_layers(narrow, context2);
      got_wide.loss.backward();
      got_narrow.loss.backward();
      expect_same_leaf_grads(got_wide, want_wide, context4->layout);
      expect_same_leaf_grads(got_narrow, want_narrow, context2->layout);
    }
  });
}

// In half precision log-sum-exps are wider than the buffer that they travel in.
TEST(AttentionParallel, all_to_all_carries_float_log_sum_exps_among_halves) {
  const AttentionCase data({9, 2, 14}, {4, 2, 8}, 10);
  run_ranks(4, [&](RankContext& at) {
    const CpContextPtr context =
        make_context(data.lengths, at.group(4), &at.exchange, {CpScheme::kAllToAll, AttentionKernel::kReference});
    const RankRun run = run_attention(data, context, at::kBFloat16);
    EXPECT_EQ(run.lse_ht.scalar_type(), at::kFloat);
    EXPECT_EQ(run.dk.scalar_type(), at::kBFloat16);
    expect_equals_one_rank(run, data, context->layout, 3e-2);
    const at::Tensor pads = (full_rows(context->layout) < 0).nonzero().squeeze(1);
    EXPECT_TRUE(run.lse_ht.index_select(1, pads).isneginf().all().item<bool>());
  });
}

class NoExchange : public Exchange {
 public:
  std::unique_ptr<PendingExchange> start(const CpGroup&, std::span<const Transfer>, const ExchangeKey&) override {
    ADD_FAILURE() << "something is sent";
    return nullptr;
  }
  Usage take_usage() override { return {}; }
};

TEST(AttentionDeathTest, all_to_all_refuses_heads_that_it_cannot_split) {
  NoExchange exchange;
  const CpContextPtr context =
      make_context({8}, CpGroup{LaneRank(0), 4, 0}, &exchange, {CpScheme::kAllToAll, AttentionKernel::kFlash});
  const at::Tensor six = at::zeros({2, 6, 8}), three = at::zeros({2, 3, 8});
  EXPECT_DEATH(cp_attention(six, three, three, context, 0, kScale), "divides the heads");
}

}  // namespace
}  // namespace ringfold
