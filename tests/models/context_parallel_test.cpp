// The dense decoder under context parallelism equals one rank; recompute changes no bit; pads never matter.
#include <gtest/gtest.h>

#include <limits>

#include "dist/thread_ranks.h"
#include "models/pack_run.h"

namespace ringfold {
namespace {

ModelConfig tiny_config(bool tied) {
  ModelConfig config;
  config.vocab_size = 37;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.initializer_range = 0.3;
  config.tie_word_embeddings = tied;
  config.qk_norm = true;
  return config;
}

Pack make_pack(const std::vector<int64_t>& lengths) {
  Pack pack;
  int64_t next = 1;
  for (const int64_t length : lengths) {
    std::vector<int64_t> tokens;
    std::vector<double> weights;
    for (int64_t i = 0; i < length; ++i) {
      next = next * 1103515245 % 2147483647;
      tokens.push_back(next % 37);
      weights.push_back(next % 3 == 0 ? 0.0 : 0.01 * static_cast<double>(next % 7));
    }
    pack.sequences.push_back(tokens);
    pack.weights.push_back(weights);
  }
  return pack;
}

struct Outcome {
  double loss = 0;
  at::Tensor gradient;
};

Outcome one_rank(bool tied, const std::vector<int64_t>& lengths, Recompute recompute,
                 at::ScalarType dtype = at::kDouble) {
  at::set_num_threads(1);
  DenseModel model(tiny_config(tied), dtype, uint64_t{5});
  const at::Tensor flat = preset_flat_gradient(model);
  const Pack pack = make_pack(lengths);
  const PackRun run = run_pack(model, pack, single_rank_context(pack), recompute);
  torch::autograd::backward({run.loss}, {});
  return {run.loss.item<double>(), flat};
}

CpContextPtr rank_context(RankContext& at, const Pack& pack, int size, CpScheme scheme) {
  const CpGroup group = at.group(size);
  auto context = std::make_shared<CpContext>(group, PackLayout(pack.lengths(), size, group.index));
  context->exchange = size > 1 ? &at.exchange : nullptr;
  context->scheme = scheme;
  return context;
}

Outcome parallel(int size, bool tied, const std::vector<int64_t>& lengths, Recompute recompute,
                 CpScheme scheme = CpScheme::kRing, int64_t pad_id = 0) {
  Outcome outcome;
  run_ranks(size, [&](RankContext& at) {
    DenseModel model(tiny_config(tied), at::kDouble, uint64_t{5});
    at::Tensor flat = preset_flat_gradient(model);
    const Pack pack = make_pack(lengths);
    const PackRun run = run_pack(model, pack, rank_context(at, pack, size, scheme), recompute, pad_id);
    torch::autograd::backward({run.loss}, {});
    at::Tensor loss = run.loss.detach().reshape({1}).clone();
    at.collectives.all_reduce_sum(flat, "gradients");
    at.collectives.all_reduce_sum(loss, "loss");
    if (at.rank == Rank(0)) outcome = {loss.item<double>(), flat};
  });
  return outcome;
}

void expect_equal(const Outcome& actual, const Outcome& wanted, const std::string& what) {
  EXPECT_NEAR(actual.loss, wanted.loss, 1e-10 * std::abs(wanted.loss)) << what;
  EXPECT_LT((actual.gradient - wanted.gradient).norm().item<double>(), 1e-10 * wanted.gradient.norm().item<double>())
      << what;
}

const std::vector<int64_t> kAwkward = {1, 17, 2, 31, 5};

TEST(ContextParallelModel, equals_one_rank_in_loss_and_gradients) {
  for (const bool tied : {true, false}) {
    const Outcome reference = one_rank(tied, kAwkward, Recompute::kNone);
    for (const int size : {2, 4}) {
      for (const CpScheme scheme : {CpScheme::kRing, CpScheme::kAllGatherKv, CpScheme::kAllToAll}) {
        expect_equal(parallel(size, tied, kAwkward, Recompute::kNone, scheme), reference,
                     "size " + std::to_string(size));
      }
    }
  }
}

TEST(ContextParallelModel, a_rank_that_owns_only_padding_contributes_zeros) {
  expect_equal(parallel(4, false, {1, 3}, Recompute::kNone), one_rank(false, {1, 3}, Recompute::kNone), "tiny");
  expect_equal(parallel(4, false, {2}, Recompute::kFull), one_rank(false, {2}, Recompute::kNone), "tiny, recompute");
}

TEST(ContextParallelModel, recompute_gives_the_same_bits) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const Outcome plain = one_rank(true, kAwkward, Recompute::kNone, dtype);
    const Outcome again = one_rank(true, kAwkward, Recompute::kFull, dtype);
    EXPECT_EQ(plain.loss, again.loss);
    EXPECT_TRUE(at::equal(plain.gradient, again.gradient));
  }
  const Outcome plain = parallel(4, false, kAwkward, Recompute::kNone);
  const Outcome again = parallel(4, false, kAwkward, Recompute::kFull);
  EXPECT_EQ(plain.loss, again.loss);
  EXPECT_TRUE(at::equal(plain.gradient, again.gradient));
}

// Case L3: every layer, and every recomputation in the backward, uses the group of its own micro-step.
TEST(ContextParallelModel, recompute_keeps_the_group_of_its_micro_step) {
  const std::vector<std::vector<int64_t>> long_then_short = {{40, 9}, {7, 3}, {12, 5}};
  std::vector<Outcome> reference;
  for (const auto& lengths : long_then_short) reference.push_back(one_rank(false, lengths, Recompute::kNone));
  Outcome outcome;
  run_ranks(4, [&](RankContext& at) {
    DenseModel model(tiny_config(false), at::kDouble, uint64_t{5});
    at::Tensor flat = preset_flat_gradient(model);
    // Forwards of all micro-steps first: a backward that used the latest context would use the wrong group.
    const Pack all_four = make_pack(long_then_short[0]);
    const Pack by_pair = make_pack(long_then_short[at.rank.value() < 2 ? 1 : 2]);
    const PackRun first = run_pack(model, all_four, rank_context(at, all_four, 4, CpScheme::kRing), Recompute::kFull);
    const PackRun second = run_pack(model, by_pair, rank_context(at, by_pair, 2, CpScheme::kRing), Recompute::kFull);
    torch::autograd::backward({first.loss}, {});
    torch::autograd::backward({second.loss}, {});
    at::Tensor loss = (first.loss + second.loss).detach().reshape({1}).clone();
    at.collectives.all_reduce_sum(flat, "gradients");
    at.collectives.all_reduce_sum(loss, "loss");
    if (at.rank == Rank(0)) outcome = {loss.item<double>(), flat};
  });
  Outcome sum = reference[0];
  for (size_t i = 1; i < reference.size(); ++i) {
    sum.loss += reference[i].loss;
    sum.gradient = sum.gradient + reference[i].gradient;
  }
  expect_equal(outcome, sum, "three packs on groups of 4 and 2");
}

TEST(ContextParallelModel, pad_rows_never_matter) {
  const Outcome reference = one_rank(false, kAwkward, Recompute::kNone);
  for (const int64_t pad_id : {int64_t{36}, int64_t{-100}, int64_t{1} << 40}) {
    expect_equal(parallel(2, false, kAwkward, Recompute::kNone, CpScheme::kRing, pad_id), reference,
                 "pad id " + std::to_string(pad_id));
  }
}

TEST(ContextParallelModel, pad_rows_are_zero_even_when_their_embedding_is_not_a_number) {
  for (const double poison : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<at::Tensor> gradients(2);
    run_ranks(2, [&](RankContext& at) {
      DenseModel model(tiny_config(false), at::kDouble, uint64_t{5});
      {
        const at::NoGradGuard no_grad;
        model.parameters()[0].value[0].fill_(poison);
      }
      const at::Tensor flat = preset_flat_gradient(model);
      Pack pack = make_pack({3, 6, 1});
      for (auto& sequence : pack.sequences) {
        for (int64_t& id : sequence) id = 1 + id % 36;
      }
      const PackRun run = run_pack(model, pack, rank_context(at, pack, 2, CpScheme::kRing), Recompute::kFull, 0);
      torch::autograd::backward({run.loss}, {});
      EXPECT_TRUE(run.hidden_th.isfinite().all().item<bool>());
      gradients[static_cast<size_t>(at.rank.value())] = flat;
    });
    for (const at::Tensor& gradient : gradients) EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  }
}

TEST(ContextParallelModel, packed_samples_do_not_see_each_other) {
  at::set_num_threads(1);
  const DenseModel model(tiny_config(true), at::kDouble, uint64_t{5});
  const at::NoGradGuard no_grad;
  Pack pack = make_pack({5, 9, 4});
  const at::Tensor before = run_pack(model, pack, single_rank_context(pack)).hidden_th;
  pack.sequences[1][3] = (pack.sequences[1][3] + 1) % 37;
  const at::Tensor after = run_pack(model, pack, single_rank_context(pack)).hidden_th;
  const at::Tensor changed = (before != after).any(1);
  EXPECT_FALSE(changed.slice(0, 0, 8).any().item<bool>());
  EXPECT_TRUE(changed.slice(0, 8, 14).all().item<bool>());
  EXPECT_FALSE(changed.slice(0, 14).any().item<bool>());
}

TEST(DenseModelGradients, accumulate_in_place_into_preset_views) {
  at::set_num_threads(1);
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    DenseModel model(tiny_config(true), at::kFloat, uint64_t{5});
    const at::Tensor flat = preset_flat_gradient(model);
    std::vector<const void*> places;
    for (const Parameter& parameter : model.parameters()) places.push_back(parameter.value.grad().data_ptr());
    const Pack pack = make_pack({12, 7});
    torch::autograd::backward({run_pack(model, pack, single_rank_context(pack), recompute).loss}, {});
    const at::Tensor once = flat.clone();
    torch::autograd::backward({run_pack(model, pack, single_rank_context(pack), recompute).loss}, {});
    EXPECT_TRUE(at::equal(flat, once + once));
    EXPECT_GT(once.norm().item<double>(), 0);
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(model.parameters()[i].value.grad().data_ptr(), places[i]) << model.parameters()[i].name;
    }
  }
}

TEST(DenseModelGradients, a_lost_peer_keeps_its_error_through_the_recompute) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    EXPECT_THROW(run_ranks(
                     2,
                     [&](RankContext& at) {
                       DenseModel model(tiny_config(true), at::kFloat, uint64_t{5});
                       const Pack pack = make_pack({12, 7});
                       const PackRun run = run_pack(model, pack, rank_context(at, pack, 2, CpScheme::kRing), recompute);
                       if (at.rank == Rank(0)) torch::autograd::backward({run.loss}, {});
                     },
                     std::chrono::milliseconds(700)),
                 PeerError);
  }
}

}  // namespace
}  // namespace ringfold
