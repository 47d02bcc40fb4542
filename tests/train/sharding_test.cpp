// Optimizer state sharded over the lane: the same weights, moments and checkpoints as one rank that holds it all.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "ringfold/train/checkpoint.h"
#include "ringfold/train/runner.h"
#include "train/train_fixture.h"

namespace ringfold {
namespace {

constexpr int64_t kSmallBucket = 700;

// An odd number of values: slices end inside tensors.
ModelConfig odd_config() {
  ModelConfig config = tiny_config(66);
  config.hidden_size = 15;
  config.head_dim = 6;
  config.intermediate_size = 23;
  return config;
}

int64_t total_of(const FlatParameters& flat) {
  return flat.segments().back().begin + flat.segments().back().size;
}

TEST(Sharding, every_element_has_one_owner) {
  for (const int world : {1, 2, 3, 4, 7}) {
    for (const int64_t bucket : {int64_t{1}, int64_t{500}, kSmallBucket, FlatParameters::kBucketElements}) {
      std::vector<std::pair<int64_t, int64_t>> parts;
      int64_t total = 0;
      for (int rank = 0; rank < world; ++rank) {
        DenseModel model(odd_config(), at::kFloat, uint64_t{5});
        const FlatParameters flat(model.parameters(), {rank, world}, bucket);
        total = total_of(flat);
        int64_t owned = 0;
        for (const FlatParameters::OwnedPart& part : flat.owned_parts()) {
          EXPECT_EQ(part.begin % 64, 0);
          EXPECT_EQ(part.owned_begin, owned);
          EXPECT_GT(part.size, 0);
          owned += part.size;
          parts.emplace_back(part.begin, part.size);
        }
        EXPECT_EQ(flat.owned_elements(), owned);
        // Nobody holds much more than a share: at most the rounding of one slice a bucket.
        if (bucket == FlatParameters::kBucketElements) {
          EXPECT_LE(owned, total / world + 64);
        }
      }
      EXPECT_EQ(total % 2, 1);
      std::sort(parts.begin(), parts.end());
      int64_t next = 0;
      for (const auto& [begin, size] : parts) {
        EXPECT_EQ(begin, next) << world << " ranks, buckets of " << bucket;
        next += size;
      }
      EXPECT_EQ(next, total);
    }
  }
}

// The same bits whether buckets are summed after the last backward or while it goes on, on plans whose ranks end with
// packs of every size.
TEST(Sharding, gradients_reduced_in_the_backward_have_the_same_bits) {
  std::vector<RunPlan> runs;
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{5, 3, 64, 9, 7, 30, 2, 11, 4}, {1, 2, 3, 2, 1, 5}, {64, 60}, {33, 3, 16, 16, 15}}) {
    for (const auto& [policy, execution] :
         {std::pair{CpPolicy::kUniform, Execution::kLockstep}, {CpPolicy::kMixed, Execution::kFree}}) {
      for (const std::string recompute : {"none", "full"}) {
        for (const bool early : {false, true}) {
          RunPlan run;
          run.settings = dynamic_settings(4, 64, 16);
          run.settings.parallel.cp_policy = policy;
          run.settings.parallel.cp_policy_given = true;
          run.settings.parallel.execution = execution;
          run.settings.parallel.execution_given = true;
          run.settings.recompute = recompute;
          run.settings.lr = 1e-2;
          run.config = odd_config();
          run.config.tie_word_embeddings = runs.size() / 2 % 2 == 0;
          run.data = make_dataset(lengths);
          run.update = true;
          run.steps = 2;
          run.log_probs = false;
          run.bucket_elements = kSmallBucket;
          run.reduce_early = early;
          runs.push_back(run);
        }
      }
    }
  }
  const std::vector<RunOutcome> outcomes = run_layouts(runs);
  for (size_t i = 0; i < outcomes.size(); i += 2) {
    EXPECT_TRUE(at::equal(outcomes[i].gradients, outcomes[i + 1].gradients)) << i;
    EXPECT_TRUE(at::equal(outcomes[i].weights, outcomes[i + 1].weights)) << i;
    EXPECT_EQ(outcomes[i].grad_norm, outcomes[i + 1].grad_norm) << i;
  }
}

TEST(Sharding, a_backward_tells_when_the_gradients_of_its_layers_are_done) {
  at::set_num_threads(1);
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    DenseModel model(odd_config(), at::kDouble, uint64_t{5});
    FlatParameters flat(model.parameters());
    PlannedGroup group;
    group.samples = {SampleId(0)};
    group.lengths = {9};
    const CpContextPtr context = make_context(RunSettings(), group, {}, CpCommType::kP2p);
    std::vector<int> order;
    std::vector<at::Tensor> then;
    const at::Tensor hidden = model.forward(at::arange(9), context, recompute, [&](int layer) {
      order.push_back(layer);
      then.push_back(flat.gradients().slice(0, flat.begin_of(model.layer_parameters(layer))).clone());
    });
    hidden.sin().sum().backward();
    EXPECT_EQ(order, (std::vector<int>{1, 0}));
    for (size_t i = 0; i < order.size(); ++i) {
      const int64_t begin = flat.begin_of(model.layer_parameters(order[i]));
      EXPECT_GT(then[i].abs().sum().item<double>(), 0);
      EXPECT_TRUE(at::equal(then[i], flat.gradients().slice(0, begin))) << order[i];
      EXPECT_EQ(begin, flat.segments()[static_cast<size_t>(1 + 11 * order[i])].begin);
    }
  }
}

// What a rank holds after some steps, and what the lane holds together (rank 0).
struct Trained {
  at::Tensor values, first_moment, second_moment;
  double grad_norm = 0;
  int64_t owned_bytes = 0;
};

Trained train(RankContext& at, const RunSettings& settings, const Dataset& data, int64_t bucket) {
  Session session = session_at(at, settings);
  DenseModel model(odd_config(), dtype_of(settings), uint64_t{5});
  FlatParameters flat(model.parameters(), shard_of(at.collectives), bucket);
  AdamW optimizer(flat, {settings.adam_beta1, settings.adam_beta2, settings.adam_eps, settings.weight_decay});
  TrainState state{model, flat, &optimizer};
  std::vector<int64_t> indices(data.samples.size());
  std::iota(indices.begin(), indices.end(), 0);
  const StepBatch batch(data, indices, settings.loss_aggregation);
  Trained trained;
  for (int step = 1; step <= 4; ++step) {
    trained.grad_norm = train_step(session, state, batch, step, settings.lr).grad_norm;
    EXPECT_GT(trained.grad_norm, settings.clip_grad);
  }
  trained.values = flat.values().clone();
  trained.first_moment = flat.gather_state(at.collectives, optimizer.first_moment());
  trained.second_moment = flat.gather_state(at.collectives, optimizer.second_moment());
  trained.owned_bytes = static_cast<int64_t>(optimizer.first_moment().nbytes());
  return trained;
}

std::vector<Trained> train_on(int world, RunSettings settings, int64_t bucket) {
  const Dataset data = make_dataset({40, 3, 17, 9, 1, 22, 5, 48, 6, 6, 7});
  std::vector<Trained> trained(static_cast<size_t>(world));
  if (world > 1) {
    settings.parallel = dynamic_settings(world, 48, world == 3 ? 48 : 64 / world).parallel;  // S: 2, 1, 4
  } else {
    settings.parallel = {};
  }
  run_ranks(world, [&](RankContext& at) {
    trained[static_cast<size_t>(at.rank.value())] = train(at, settings, data, bucket);
  });
  return trained;
}

double relative(const at::Tensor& got, const at::Tensor& want) {
  return (got - want).norm().item<double>() / want.norm().item<double>();
}

TEST(Sharding, weights_and_moments_equal_one_rank) {
  log::set_level(log::Level::kWarning);
  for (const std::string dtype : {"float64", "float32"}) {
    RunSettings settings = dynamic_settings(4, 64, 16);
    settings.dtype = dtype;
    settings.lr = 1e-2;
    settings.weight_decay = 0.1;
    settings.clip_grad = 0.05;
    const Trained alone = train_on(1, settings, FlatParameters::kBucketElements).front();
    const double tolerance = dtype == "float64" ? 1e-10 : 1e-5;
    // The first step moves every weight by lr whatever its gradient is, so that later ones see fp32's rounding
    // enlarged.
    const double of_moments = dtype == "float64" ? 1e-10 : 5e-5;
    for (const int world : {1, 2, 3, 4}) {
      for (const int64_t bucket : {kSmallBucket, FlatParameters::kBucketElements}) {
        const std::vector<Trained> lane = train_on(world, settings, bucket);
        const std::string what = dtype + ", " + std::to_string(world) + " ranks, buckets of " + std::to_string(bucket);
        EXPECT_LE(relative(lane[0].values, alone.values), tolerance) << what;
        EXPECT_LE(relative(lane[0].first_moment, alone.first_moment), of_moments) << what;
        EXPECT_LE(relative(lane[0].second_moment, alone.second_moment), of_moments) << what;
        EXPECT_NEAR(lane[0].grad_norm, alone.grad_norm, tolerance * alone.grad_norm) << what;
        int64_t owned_bytes = 0;
        for (const Trained& rank : lane) {
          EXPECT_TRUE(at::equal(rank.values, lane[0].values)) << what;
          EXPECT_EQ(rank.grad_norm, lane[0].grad_norm) << what;
          owned_bytes += rank.owned_bytes;
        }
        EXPECT_EQ(owned_bytes, alone.owned_bytes) << what;
      }
    }
  }
}

TEST(Sharding, masters_of_half_precision_are_sharded_and_ranks_read_the_same_weights) {
  std::vector<at::Tensor> weights(3), masters(3);
  const auto train = [&](RankContext& at, size_t slot) {
    DenseModel model(odd_config(), at::kBFloat16, uint64_t{5});
    FlatParameters flat(model.parameters(), shard_of(at.collectives), kSmallBucket);
    AdamW optimizer(flat, {0.9, 0.95, 1e-8, 0.1});
    for (int step = 0; step < 3; ++step) {
      flat.zero_gradients();
      // Every rank's share of the sum is exact in fp32.
      flat.gradients().copy_(at::sin(at::arange(total_of(flat), at::kFloat) + step)).div_(at.world);
      flat.reduce_gradients(at.collectives);
      optimizer.step(1e-3, 0.5);
      flat.gather_values(at.collectives);
      flat.sleep();
      optimizer.sleep();
      optimizer.wake();
      flat.wake();
    }
    EXPECT_EQ(flat.masters().numel(), flat.owned_elements());
    for (const FlatParameters::OwnedPart& part : flat.owned_parts()) {
      EXPECT_TRUE(at::equal(flat.values().narrow(0, part.begin, part.size), flat.master_part(part).to(at::kBFloat16)));
    }
    const at::Tensor whole = flat.gather_state(at.collectives, flat.masters());
    if (at.rank != Rank(0)) {
      EXPECT_FALSE(whole.defined());
      weights[2] = flat.values().clone();
      return;
    }
    weights[slot] = flat.values().clone();
    masters[slot] = whole;
  };
  run_ranks(1, [&](RankContext& at) { train(at, 0); });
  run_ranks(2, [&](RankContext& at) { train(at, 1); });
  EXPECT_TRUE(at::equal(weights[1], weights[2]));
  EXPECT_LE(relative(masters[1], masters[0]), 1e-6);
  EXPECT_TRUE(at::equal(weights[1], masters[1].to(at::kBFloat16)));
}

// A lane in training on made-up gradients; its checkpoints.
Checkpoint checkpoint_of(int world, const std::optional<Checkpoint>& from, int steps, at::ScalarType dtype) {
  Checkpoint taken;
  run_ranks(world, [&](RankContext& at) {
    const bool is_main = at.rank == Rank(0);
    DenseModel model(odd_config(), dtype, uint64_t{5} + static_cast<uint64_t>(at.rank.value()));
    FlatParameters flat(model.parameters(), shard_of(at.collectives), kSmallBucket);
    AdamW optimizer(flat, {0.9, 0.95, 1e-8, 0.1});
    flat.gather_values(at.collectives);
    if (from) {
      if (is_main) require_same_tensors(*from, "PATH", flat);
      restore_tensors(at.collectives, is_main ? *from : Checkpoint(), flat, optimizer);
    }
    for (int step = 0; step < steps; ++step) {
      const auto made = static_cast<double>(optimizer.steps());
      flat.gradients().copy_(at::cos(at::arange(total_of(flat), flat.gradients().options()) * 0.3 + made));
      flat.reduce_gradients(at.collectives);
      optimizer.step(1e-2, 1.0);
      flat.gather_values(at.collectives);
    }
    Checkpoint mine =
        capture_checkpoint(at.collectives, CheckpointState(), model, flat, optimizer, {}, /*copied=*/true);
    EXPECT_EQ(mine.weights.empty(), !is_main);
    EXPECT_EQ(mine.optimizer.empty(), !is_main);
    if (is_main) taken = std::move(mine);
  });
  return taken;
}

void expect_same_bits(const std::vector<NamedTensor>& got, const std::vector<NamedTensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name);
    EXPECT_TRUE(at::equal(got[i].value, want[i].value)) << got[i].name;
  }
}

TEST(Sharding, a_checkpoint_knows_no_lane_size) {
  for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16}) {
    const Checkpoint written = checkpoint_of(3, std::nullopt, 3, dtype);
    EXPECT_EQ(written.state.optimizer_steps, 3);
    EXPECT_EQ(written.optimizer.size(), written.weights.size() * (dtype == at::kDouble ? 2 : 3));
    for (const int world : {1, 2, 3, 4}) {
      const Checkpoint again = checkpoint_of(world, written, 0, dtype);
      EXPECT_EQ(again.state.optimizer_steps, 3);
      expect_same_bits(again.weights, written.weights);
      expect_same_bits(again.optimizer, written.optimizer);
    }
    const Checkpoint unbroken = checkpoint_of(3, std::nullopt, 5, dtype), resumed = checkpoint_of(3, written, 2, dtype);
    expect_same_bits(resumed.weights, unbroken.weights);
    expect_same_bits(resumed.optimizer, unbroken.optimizer);
  }
}

}  // namespace
}  // namespace ringfold
