#include "ringfold/train/memory_estimate.h"

#include <gmock/gmock.h>

#include "ringfold/base/log.h"

namespace ringfold {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ModelConfig qwen3_4b() {
  ModelConfig config;
  config.vocab_size = 151936;
  config.hidden_size = 2560;
  config.intermediate_size = 9728;
  config.num_hidden_layers = 36;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.tie_word_embeddings = true;
  config.qk_norm = true;
  return config;
}

struct EstimatedRun {
  RunSettings settings;
  Topology topology;
};

EstimatedRun on_gpus(int lane, const std::string& recompute) {
  EstimatedRun run;
  run.settings.device = "cuda";
  run.settings.dtype = "bfloat16";
  run.settings.recompute = recompute;
  run.settings.log_prob_chunk_tokens = 4096;
  run.topology.world_size = run.topology.dp = lane;
  run.topology.budget = 8192;
  return run;
}

MemoryEstimate estimate(const EstimatedRun& run) {
  return estimate_memory(run.settings, run.topology, qwen3_4b(), 8192, 1 << 20);
}

TEST(MemoryEstimate, is_near_what_was_measured_on_a_gpu) {
  // docs/benchmarks/gpu.md: 72.4 GB of weights, gradients and optimizer; 23.3 GB beside them.
  const MemoryEstimate one = estimate(on_gpus(1, "selective"));
  EXPECT_NEAR((one.weights + one.gradients + one.optimizer) / 1e9, 72.4, 0.1);
  EXPECT_NEAR((one.activations + one.workspace) / 1e9, 23.3, 0.05 * 23.3);
  EXPECT_EQ(one.tokens, 8192);
}

TEST(MemoryEstimate, only_masters_and_moments_shrink_with_the_lane) {
  const MemoryEstimate one = estimate(on_gpus(1, "selective")), eight = estimate(on_gpus(8, "selective"));
  EXPECT_EQ(eight.weights, one.weights);
  EXPECT_EQ(eight.gradients, one.gradients);
  EXPECT_DOUBLE_EQ(8 * eight.optimizer, one.optimizer);
  EXPECT_EQ(eight.activations, one.activations);
  EXPECT_THAT(to_text(eight, 8), AllOf(HasSubstr(" GB a rank: weights 8.0"), HasSubstr("(1/8 of it), activations of "
                                                                                       "8192 tokens")));
  EXPECT_THAT(to_text(one, 1), Not(HasSubstr("of it")));
}

TEST(MemoryEstimate, follows_recompute_budget_and_type) {
  const double none = estimate(on_gpus(1, "none")).activations;
  const double selective = estimate(on_gpus(1, "selective")).activations;
  const MemoryEstimate full = estimate(on_gpus(1, "full"));
  EXPECT_GT(none, 1.5 * selective);
  EXPECT_DOUBLE_EQ(full.activations, 36.0 * 8192 * 2560 * 2);
  EstimatedRun half = on_gpus(1, "selective");
  half.topology.budget = 4096;
  EXPECT_DOUBLE_EQ(2 * estimate(half).activations, selective);
  // No rank ever has more tokens than there are; without a budget a pack is one sample.
  EXPECT_EQ(estimate_memory(half.settings, half.topology, qwen3_4b(), 100, 1000).tokens, 1000);
  half.topology.budget = 0;
  half.topology.max_cp = 4;
  EXPECT_EQ(estimate_memory(half.settings, half.topology, qwen3_4b(), 1001, 9999).tokens, 252);
  EstimatedRun wide = on_gpus(1, "none");
  wide.settings.device = "cpu";
  wide.settings.dtype = "float32";
  const MemoryEstimate float32 = estimate(wide);
  EXPECT_DOUBLE_EQ(float32.optimizer, 2 * float32.weights);
  EXPECT_DOUBLE_EQ(float32.gradients, float32.weights);
}

TEST(MemoryEstimate, a_peak_over_it_is_a_warning) {
  const MemoryEstimate estimated{
      .weights = 1e9, .gradients = 2e9, .optimizer = 3e9, .activations = 3e9, .workspace = 1e9};
  const auto told = [&](int64_t peak) {
    testing::internal::CaptureStderr();
    log::set_level(log::Level::kInfo);
    compare_with_peak(estimated, peak);
    log::set_level(log::Level::kWarning);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(told(10'900'000'000),
              AllOf(HasSubstr("peak memory 10.90 GB a rank, estimated 10.00 GB"), Not(HasSubstr("warning"))));
  EXPECT_THAT(told(11'100'000'000),
              HasSubstr("peak memory of 11.10 GB a rank is more than 10 % over the estimate of 10.00 GB"));
}

}  // namespace
}  // namespace ringfold
