// The rules of a run that need no ranks: weights, advantages, schedule, clipping, AdamW.
#include <cmath>
#include <functional>

#include "ringfold/base/error.h"
#include "ringfold/train/advantages.h"
#include "ringfold/train/objective_check.h"
#include "ringfold/train/schedule.h"
#include "train/train_fixture.h"

namespace ringfold {
namespace {

std::vector<const Sample*> pointers(const Dataset& data) {
  std::vector<const Sample*> batch;
  for (const Sample& sample : data.samples) batch.push_back(&sample);
  return batch;
}

TEST(LossWeights, follow_the_three_aggregations) {
  Dataset data;
  data.samples = {make_sample(0, 10, 4), make_sample(1, 10, 1), make_sample(2, 5, 0)};
  const auto batch = pointers(data);
  const LossWeights token = loss_weights(batch, LossAggregation::kTokenMean);
  EXPECT_EQ(token.loss_tokens, 5);
  EXPECT_EQ(token.per_sample, (std::vector<double>{0.2, 0.2, 0}));
  EXPECT_EQ(loss_weights(batch, LossAggregation::kSeqMeanTokenSum).per_sample,
            (std::vector<double>{1.0 / 3, 1.0 / 3, 0}));
  EXPECT_EQ(loss_weights(batch, LossAggregation::kSeqMeanTokenMean).per_sample,
            (std::vector<double>{1.0 / 12, 1.0 / 3, 0}));
}

Dataset rewarded(const std::vector<std::pair<std::string, double>>& rewards) {
  Dataset data;
  data.file = "rollouts.jsonl";
  for (const auto& [group, reward] : rewards) {
    data.samples.push_back(make_sample(static_cast<int64_t>(data.samples.size()), 4));
    data.samples.back().group = group;
    data.samples.back().reward = reward;
  }
  return data;
}

TEST(Advantages, are_normalised_by_group) {
  RunSettings settings;
  settings.objective = Objective::kGrpo;
  const Advantages result =
      compute_advantages(settings, rewarded({{"a", 1}, {"b", 5}, {"a", 0}, {"a", 1}, {"c", 2}, {"c", 2}}));
  const double mean = 2.0 / 3, deviation = std::sqrt((2 * std::pow(1 - mean, 2) + mean * mean) / 2);
  EXPECT_NEAR(result.per_sample[0], (1 - mean) / (deviation + 1e-6), 1e-12);
  EXPECT_NEAR(result.per_sample[2], -mean / (deviation + 1e-6), 1e-12);
  EXPECT_EQ(result.per_sample[1], 0);  // alone in its group
  EXPECT_EQ(result.per_sample[4], 0);  // equal rewards
  EXPECT_EQ(result.groups, 3);
  EXPECT_EQ(result.single_groups, 1);
  EXPECT_EQ(result.flat_groups, 1);
}

TEST(Advantages, name_the_sample_without_a_reward) {
  Dataset data = rewarded({{"a", 1}, {"a", 0}});
  data.samples[1].reward.reset();
  try {
    RunSettings settings;
    settings.objective = Objective::kGrpo;
    compute_advantages(settings, data);
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("rollouts.jsonl:2 (sample 1): --objective grpo needs the field `reward`"),
              std::string::npos)
        << error.what();
  }
}

TEST(Advantages, ppo_has_no_critic_and_says_so) {
  RunSettings settings;
  settings.objective = Objective::kPpo;
  try {
    compute_advantages(settings, rewarded({{"a", 1}, {"a", 0}}));
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("(sample 0): --objective ppo needs the field `advantages`"),
              std::string::npos)
        << error.what();
  }
  settings.advantage_estimator = AdvantageEstimator::kRloo;
  EXPECT_EQ(compute_advantages(settings, rewarded({{"a", 1}, {"a", 0}})).per_sample, (std::vector<double>{1, -1}));
}

// The message of check_objective for settings that `change` spoils.
std::string objection(const std::function<void(RunSettings&)>& change) {
  RunSettings settings;
  settings.objective = Objective::kGrpo;
  change(settings);
  try {
    check_objective(settings);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(ObjectiveCheck, refuses_flags_without_effect_and_flags_that_exclude_each_other) {
  using S = RunSettings&;
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message << "; expected " << part;
  };
  EXPECT_EQ(objection([](S) {}), "");
  const auto sft = [](S s) { s.objective = Objective::kSft; };
  expect(objection([&](S s) { sft(s), s.use_rollout_logprobs = true; }),
         "--use-rollout-logprobs has no meaning with --objective sft");
  expect(objection([&](S s) { sft(s), s.use_kl_loss = true; }), "--use-kl-loss has no meaning with --objective sft");
  expect(objection([](S s) { s.kl_loss_coef = 0.1; }), "--kl-loss-coef 0.1 needs --use-kl-loss");
  expect(objection([](S s) { s.use_kl_loss = true, s.kl_loss_coef = 0.1, s.kl_coef = 0.2; }),
         "--kl-loss-coef 0.1 and --kl-coef 0.2: the KL is a loss or a reward, not both");
  expect(objection([](S s) { s.ref_load = "ref"; }), "--ref-load ref has no use without a KL");
  expect(objection([](S s) { s.eps_clip_c = 0.5; }), "--eps-clip-c: got 0.5, expected more than 1");
  expect(objection([](S s) { s.objective = Objective::kCispo, s.eps_clip_c = 3; }),
         "--eps-clip-c 3 has no meaning with --objective cispo");
  expect(objection([](S s) { s.use_tis = s.use_rollout_logprobs = true; }),
         "--use-tis and --use-rollout-logprobs: got both, expected one");
  expect(objection([](S s) { s.use_tis = true, s.tis_clip_low = 3; }),
         "--tis-clip-low: got 3, expected at most --tis-clip 2");
  expect(objection([](S s) { s.loss_scale_factor = 8; }),
         "--loss-scale-factor 8 belongs to --loss-aggregation dr-grpo");
}

TEST(Schedule, warms_up_then_follows_the_cosine) {
  RunSettings settings;
  settings.lr = 1;
  settings.min_lr = 0.1;
  settings.lr_warmup_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate(settings, 1, 12), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(settings, 4, 12), 1);
  EXPECT_DOUBLE_EQ(learning_rate(settings, 12, 12), 1);  // constant
  settings.lr_decay_style = LrDecay::kCosine;
  EXPECT_DOUBLE_EQ(learning_rate(settings, 5, 12), 1);
  EXPECT_NEAR(learning_rate(settings, 9, 12), 0.55, 1e-12);
  EXPECT_GT(learning_rate(settings, 12, 12), 0.1);
  EXPECT_NEAR(learning_rate(settings, 13, 12), 0.1, 1e-12);
}

TEST(Schedule, counts_steps_by_epochs_or_steps_whichever_ends_first) {
  RunSettings settings;
  EXPECT_EQ(total_steps(settings, 5), 5);
  settings.epochs = 1.5;
  EXPECT_EQ(total_steps(settings, 5), 8);
  settings.max_steps = 3;
  EXPECT_EQ(total_steps(settings, 5), 3);
  settings.epochs = 0;
  settings.max_steps = 30;
  EXPECT_EQ(total_steps(settings, 5), 30);
}

TEST(Optimizer, clips_by_the_global_norm) {
  EXPECT_EQ(clip_factor(3, 0), 1);
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_NEAR(clip_factor(4, 1), 0.25, 1e-6);
}

TEST(Optimizer, adamw_follows_its_formula_and_spares_norms_from_decay) {
  DenseModel model(tiny_config(), at::kDouble, uint64_t{5});
  FlatParameters flat(model.parameters());
  AdamW optimizer(flat, {0.9, 0.95, 1e-8, 0.1});
  const at::Tensor before = flat.values().clone();
  const double gradients[2] = {0.5, -0.25};
  for (const double gradient : gradients) {
    flat.gradients().fill_(gradient);
    optimizer.step(0.01, 1);
  }
  // By hand, for one element.
  const auto expected = [&](double value, double decay) {
    double m = 0, v = 0;
    for (int t = 1; t <= 2; ++t) {
      const double g = gradients[t - 1];
      m = 0.9 * m + 0.1 * g;
      v = 0.95 * v + 0.05 * g * g;
      value *= 1 - 0.01 * decay;
      value -= 0.01 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.95, t))) + 1e-8);
    }
    return value;
  };
  for (const auto& segment : flat.segments()) {
    const double start = before[segment.begin].item<double>();
    EXPECT_NEAR(flat.values()[segment.begin].item<double>(), expected(start, segment.weight_decay ? 0.1 : 0), 1e-12)
        << segment.name;
    EXPECT_EQ(segment.weight_decay, segment.name.find("norm") == std::string::npos) << segment.name;
  }
  // The model reads the updated values.
  EXPECT_EQ(model.parameters()[0].value.data_ptr(), flat.values().data_ptr());
}

TEST(Objective, ppo_clip_follows_its_formula) {
  RunSettings settings;
  settings.objective = Objective::kGrpo;
  settings.eps_clip = 0.2;
  settings.eps_clip_high = 0.28;
  const auto doubles = [](std::vector<double> values) { return at::tensor(values, at::kDouble); };
  TokenScores scores;
  scores.log_prob_n = doubles({-1, -1, -1, -1}).requires_grad_(true);
  scores.entropy_n = doubles({0.5, 0.5, 1, 2});
  TokenTerms terms;
  terms.weight_n = doubles({0.25, 0.25, 0.25, 0.25});
  // Ratios: 1, e^0.5 with A > 0 (clipped at 1.28), e^0.5 with A < 0 (not clipped), e^-0.5 with A < 0 (clipped at 0.8).
  terms.old_log_prob_n = doubles({-1, -1.5, -1.5, -0.5});
  terms.advantage_n = doubles({2, 1, -1, -1});
  const ObjectiveResult result = token_loss(settings, scores, terms);
  const double expected = 0.25 * (-2 - 1.28 + std::exp(0.5) + 0.8);
  const LossSums sums = read_sums({result.sums_n});
  EXPECT_NEAR(sums.loss, expected, 1e-12);
  EXPECT_EQ(sums.clipped, 2);
  EXPECT_EQ(sums.tokens, 4);
  EXPECT_EQ(sums.entropy, 4);
  EXPECT_NEAR(sums.ratio_deviation, std::exp(0.5) - 1, 1e-12);
  result.loss.backward();
  const at::Tensor gradient = scores.log_prob_n.grad();
  EXPECT_NEAR(gradient[0].item<double>(), -0.5, 1e-12);
  EXPECT_EQ(gradient[1].item<double>(), 0);
  EXPECT_NEAR(gradient[2].item<double>(), 0.25 * std::exp(0.5), 1e-12);
  EXPECT_EQ(gradient[3].item<double>(), 0);
}

}  // namespace
}  // namespace ringfold
