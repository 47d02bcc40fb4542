// A tiny model, samples of given lengths, and steps on any layout with ranks as threads.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dist/thread_ranks.h"
#include "ringfold/base/log.h"
#include "ringfold/train/log_probs.h"
#include "ringfold/train/rl_fields.h"
#include "ringfold/train/step.h"

namespace ringfold {

inline ModelConfig tiny_config(int64_t vocab_size = 61) {
  ModelConfig config;
  config.architecture = Architecture::kQwen3;
  config.vocab_size = vocab_size;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.rms_norm_eps = 1e-6;
  config.rope_theta = 10000;
  config.initializer_range = 0.3;
  config.tie_word_embeddings = true;
  config.qk_norm = true;
  config.json = "{}";
  return config;
}

// Seeded tokens; the last `response` tokens are loss tokens (all but the first when not given).
inline Sample make_sample(int64_t id, int64_t length, std::optional<int64_t> response = {}) {
  Sample sample;
  sample.id = SampleId(id);
  sample.line = id + 1;
  uint64_t state = 977 + static_cast<uint64_t>(id) * 7919;
  for (int64_t t = 0; t < length; ++t) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    sample.tokens.push_back(static_cast<int64_t>((state >> 33) % 61));
  }
  sample.response_length = response.value_or(length - 1);
  sample.loss_mask.assign(static_cast<size_t>(length), 0);
  for (int64_t t = length - sample.response_length; t < length; ++t) sample.loss_mask[static_cast<size_t>(t)] = 1;
  return sample;
}

inline Dataset make_dataset(const std::vector<int64_t>& lengths) {
  Dataset data;
  data.file = "test";
  for (size_t i = 0; i < lengths.size(); ++i) data.samples.push_back(make_sample(static_cast<int64_t>(i), lengths[i]));
  return data;
}

// The flags every dynamic case carries.
inline RunSettings dynamic_settings(int world, int64_t context, int64_t budget) {
  RunSettings settings;
  settings.dtype = "float64";
  settings.parallel.world_size = world;
  settings.parallel.dynamic_context_parallel = true;
  settings.parallel.use_dynamic_batch_size = true;
  settings.parallel.calculate_per_token_loss = true;
  settings.parallel.rollout_max_context_len = context;
  settings.parallel.max_tokens_per_gpu = budget;
  settings.clip_grad = 0;
  return settings;
}

struct RunOutcome {
  double loss = 0;
  double loss_tokens = 0;
  double grad_norm = 0;
  at::Tensor gradients;
  at::Tensor weights;
  std::vector<std::vector<double>> log_probs;  // by sample, input order
  std::vector<int> cp_sizes;                   // that occurred, ascending
  StepMetrics metrics;
  LossSums sums;
  RlFields rl;  // with make_rl
};

struct RunPlan {
  RunSettings settings;
  Dataset data;
  ModelConfig config = tiny_config();
  const RlFields* rl = nullptr;
  bool make_rl = false;  // from the data, as a run does it
  const ReferenceWeights* reference = nullptr;
  int steps = 1;  // optimizer steps on the same batch
  bool log_probs = true;
  bool update = false;
  int64_t bucket_elements = FlatParameters::kBucketElements;
  bool reduce_early = false;
};

inline at::ScalarType dtype_of(const RunSettings& settings) {
  return settings.dtype == "float64" ? at::kDouble : at::kFloat;
}

// Runs the plan on one rank (thread) of the lane.
inline RunOutcome run_on_rank(const RunPlan& run, Session& session) {
  DenseModel model(run.config, dtype_of(run.settings), uint64_t{5});
  FlatParameters flat(model.parameters(), shard_of(session.collectives()), run.bucket_elements);
  AdamW optimizer(flat,
                  {run.settings.adam_beta1, run.settings.adam_beta2, run.settings.adam_eps, run.settings.weight_decay});
  TrainState state{model, flat, run.update ? &optimizer : nullptr};
  state.reduce_early = run.reduce_early;
  std::vector<int64_t> indices;
  for (size_t i = 0; i < run.data.samples.size(); ++i) indices.push_back(static_cast<int64_t>(i));
  StepBatch batch(run.data, indices, run.settings.loss_aggregation, run.settings.loss_scale_factor);
  RlFields made;
  if (run.make_rl) made = rl_fields(session, model, run.data, run.reference);
  batch.rl = run.make_rl ? &made : run.rl;
  RunOutcome outcome;
  if (run.log_probs) {
    StepBatch forward(run.data, indices, run.settings.loss_aggregation);
    for (const SampleScores& scores : score_samples(session, model, forward, 0)) {
      outcome.log_probs.push_back(scores.log_probs);
    }
  }
  for (int step = 1; step <= run.steps; ++step) {
    const StepReport report = train_step(session, state, batch, step, run.settings.lr);
    outcome.metrics = step_metrics(session, run.config, batch, report);
    outcome.sums = report.sums;
    outcome.loss = report.sums.loss;
    outcome.loss_tokens = report.sums.tokens;
    outcome.grad_norm = report.grad_norm;
  }
  for (const auto& [size, packs] : outcome.metrics.cp_histogram) outcome.cp_sizes.push_back(size);
  outcome.rl = std::move(made);
  flat.gather_gradients(session.collectives());
  outcome.gradients = flat.gradients().clone();
  outcome.weights = flat.values().clone();
  return outcome;
}

// A session of one rank (thread).
inline Session session_at(RankContext& at, const RunSettings& settings) {
  Session session;
  session.settings = settings;
  session.env.rank = at.rank;
  session.env.world_size = at.world;
  session.topology = derive_topology(settings.parallel);
  session.lane_rank = at.lane_rank;
  session.exchange = &at.exchange;
  session.reductions = &at.collectives;
  return session;
}

// Runs the plans one after the other on the same ranks (connecting ranks costs more than a tiny step); returns rank 0's
// outcomes after checking that all ranks ended with the same bits. All plans have the same world size.
inline std::vector<RunOutcome> run_layouts(const std::vector<RunPlan>& runs) {
  log::set_level(log::Level::kWarning);
  const int world = runs.front().settings.parallel.world_size;
  std::mutex mutex;
  std::vector<std::vector<RunOutcome>> outcomes(static_cast<size_t>(world));
  run_ranks(
      world,
      [&](RankContext& at) {
        std::vector<RunOutcome> mine;
        for (const RunPlan& run : runs) {
          RunSettings settings = run.settings;
          settings.parallel.heads = {run.config.num_attention_heads, run.config.num_key_value_heads};
          Session session = session_at(at, settings);
          mine.push_back(run_on_rank(run, session));
        }
        const std::lock_guard lock(mutex);
        outcomes[static_cast<size_t>(at.rank.value())] = std::move(mine);
      },
      std::chrono::seconds(60));
  for (const auto& other : outcomes) {
    for (size_t i = 0; i < runs.size(); ++i) {
      EXPECT_TRUE(at::equal(other[i].gradients, outcomes[0][i].gradients));
      EXPECT_TRUE(at::equal(other[i].weights, outcomes[0][i].weights));
      EXPECT_EQ(other[i].loss, outcomes[0][i].loss);
      EXPECT_EQ(other[i].log_probs, outcomes[0][i].log_probs);
    }
  }
  return outcomes[0];
}

inline RunOutcome run_layout(const RunPlan& run) {
  return run_layouts({run}).front();
}

// REF of the cases: the same samples in one process, one sample at a time, no packing, no CP, plain attention.
inline RunOutcome run_reference(RunPlan run) {
  ParallelSettings alone;
  run.settings.parallel = alone;
  run.settings.attention_kernel = "reference";
  run.settings.recompute = "none";
  return run_layout(run);
}

// Spec 13: float64 1e-10 relative; float32 loss 1e-6, log-probs 1e-5, gradients 1e-5 of the norm + 1e-7 global.
inline void expect_equal_outcomes(const RunOutcome& got, const RunOutcome& reference, bool float64,
                                  const std::string& what, const ModelConfig& config = tiny_config()) {
  const double loss_tolerance = (float64 ? 1e-10 : 1e-6) * std::max(1e-12, std::abs(reference.loss));
  EXPECT_NEAR(got.loss, reference.loss, loss_tolerance) << what;
  EXPECT_EQ(got.loss_tokens, reference.loss_tokens) << what;
  ASSERT_EQ(got.log_probs.size(), reference.log_probs.size()) << what;
  for (size_t i = 0; i < got.log_probs.size(); ++i) {
    ASSERT_EQ(got.log_probs[i].size(), reference.log_probs[i].size()) << what << " sample " << i;
    for (size_t t = 0; t < got.log_probs[i].size(); ++t) {
      ASSERT_NEAR(got.log_probs[i][t], reference.log_probs[i][t], float64 ? 1e-10 : 1e-5)
          << what << " sample " << i << " response token " << t;
    }
  }
  const double global = reference.gradients.norm().item<double>();
  DenseModel names(config, at::kFloat, uint64_t{5});
  int64_t begin = 0;
  for (const Parameter& parameter : names.parameters()) {
    const int64_t size = parameter.value.numel();
    const at::Tensor a = reference.gradients.narrow(0, begin, size).to(at::kDouble);
    const at::Tensor b = got.gradients.narrow(0, begin, size).to(at::kDouble);
    const double allowed =
        float64 ? 1e-10 * a.norm().item<double>() + 1e-13 * global : 1e-5 * a.norm().item<double>() + 1e-7 * global;
    EXPECT_LE((a - b).norm().item<double>(), allowed + 1e-300) << what << " gradient of " << parameter.name;
    begin += size;
  }
}

}  // namespace ringfold
