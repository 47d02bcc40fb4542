// Every objective on mixed CP sizes equals a plain reference written here from the papers' formulas: one process, one
// sample at a time, whole logits, autograd in fp64. The two share the model's layers and nothing of losses, weights,
// advantages or heads.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <map>

#include "ringfold/train/runner.h"
#include "train/train_fixture.h"

namespace ringfold {
namespace {

// Rollouts of four prompts: rewards, off-policy old, reference and rollout log-probs, turns of an environment in the
// middle of some responses.
Dataset rollouts() {
  const std::vector<int64_t> lengths = {61, 7, 3, 9, 2, 5, 40, 1, 22, 6, 13, 30};
  Dataset data;
  data.file = "rollouts.jsonl";
  uint64_t state = 11;
  const auto draw = [&state](double low, double high) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return low + (high - low) * static_cast<double>(state >> 11) / 9007199254740992.0;
  };
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t response = std::min(lengths[i] - 1, 1 + lengths[i] * 2 / 3);
    Sample sample = make_sample(static_cast<int64_t>(i), lengths[i], response);
    for (int64_t t = sample.response_begin() + 2; t < sample.length() - 1 && i % 2 == 0; t += 5) {
      sample.loss_mask[static_cast<size_t>(t)] = 0;
    }
    sample.reward = draw(0, 1);
    sample.group = std::string(1, static_cast<char>('a' + i % 4));
    for (int64_t t = 0; t < response; ++t) {
      const double old = draw(-6, -2);
      sample.old_log_probs.push_back(old);
      sample.ref_log_probs.push_back(old + draw(-0.5, 0.5));
      sample.rollout_log_probs.push_back(old + draw(-1, 1));
    }
    data.samples.push_back(std::move(sample));
  }
  return data;
}

// Of one sample: the entries of its loss tokens.
struct Tokens {
  at::Tensor log_prob, entropy, old, ref, rollout, advantage;
  int64_t count = 0;
};

at::Tensor at_loss_tokens(const Sample& sample, const std::vector<double>& per_response_token) {
  std::vector<double> picked;
  for (size_t t = 0; t < per_response_token.size(); ++t) {
    if (sample.loss_mask[static_cast<size_t>(sample.response_begin()) + t]) picked.push_back(per_response_token[t]);
  }
  return at::tensor(picked, at::kDouble);
}

Tokens score_plainly(const DenseModel& model, const RunSettings& settings, const Sample& sample) {
  PlannedGroup group;
  group.lengths = {sample.length()};
  RunSettings plain = settings;
  plain.attention_kernel = "reference";
  const at::Tensor hidden =
      model.forward(at::tensor(sample.tokens), make_context(plain, group, {}, CpCommType::kP2p), Recompute::kNone);
  const at::Tensor log_p = at::log_softmax(at::matmul(hidden, model.head_weight().t()) / settings.temperature, -1);
  std::vector<int64_t> rows, targets;
  for (int64_t t = 1; t < sample.length(); ++t) {
    if (!sample.loss_mask[static_cast<size_t>(t)]) continue;
    rows.push_back(t - 1);
    targets.push_back(sample.tokens[static_cast<size_t>(t)]);
  }
  Tokens tokens;
  tokens.count = static_cast<int64_t>(rows.size());
  const at::Tensor picked = log_p.index_select(0, at::tensor(rows, at::kLong));
  tokens.log_prob = picked.gather(1, at::tensor(targets, at::kLong).unsqueeze(1)).squeeze(1);
  tokens.entropy = -(picked.exp() * picked).sum(1);
  tokens.old = at_loss_tokens(sample, sample.old_log_probs);
  tokens.ref = at_loss_tokens(sample, sample.ref_log_probs);
  tokens.rollout = at_loss_tokens(sample, sample.rollout_log_probs);
  return tokens;
}

at::Tensor kl_of(KlType type, const at::Tensor& log_prob, const at::Tensor& ref) {
  switch (type) {
    case KlType::kK1:
      return log_prob - ref;
    case KlType::kK2:
      return at::pow(log_prob - ref, 2) * 0.5;
    default:
      return at::exp(ref - log_prob) - (ref - log_prob) - 1;
  }
}

void put_advantages(const RunSettings& s, const Dataset& data, std::vector<Tokens>& all) {
  const size_t n = all.size();
  std::vector<double> reward(n);
  for (size_t i = 0; i < n; ++i) {
    reward[i] = *data.samples[i].reward;
    const KlType type = s.kl_loss_type == KlType::kByUse ? KlType::kK1 : s.kl_loss_type;
    if (s.kl_coef > 0) reward[i] -= s.kl_coef * kl_of(type, all[i].old, all[i].ref).sum().item<double>();
  }
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t i = 0; i < n; ++i) groups[*data.samples[i].group].push_back(i);
  for (const auto& [name, members] : groups) {
    std::vector<double> values;
    for (const size_t i : members) values.push_back(reward[i]);
    const at::Tensor r = at::tensor(values, at::kDouble);
    const double sum = r.sum().item<double>(), k = static_cast<double>(values.size());
    const double deviation = r.std().item<double>();
    for (const size_t i : members) {
      double a = reward[i] - sum / k;
      if (s.objective == Objective::kRloo) a = reward[i] - (sum - reward[i]) / (k - 1);
      if (s.objective == Objective::kGrpo || s.objective == Objective::kGspo || s.objective == Objective::kCispo) {
        a /= deviation + 1e-6;
      }
      all[i].advantage = at::full({all[i].count}, a, at::kDouble);
    }
  }
  if (s.objective == Objective::kPpo) {
    for (size_t i = 0; i < n; ++i) {
      all[i].advantage = at_loss_tokens(data.samples[i], data.samples[i].advantages);
    }
  }
  if (s.objective == Objective::kReinforcePlusPlus) {
    for (size_t i = 0; i < n; ++i) {
      const at::Tensor kl =
          s.kl_coef > 0 ? s.kl_coef * (all[i].old - all[i].ref) : at::zeros({all[i].count}, at::kDouble);
      std::vector<double> values(static_cast<size_t>(all[i].count));
      for (int64_t t = 0; t < all[i].count; ++t) {
        double value = std::pow(s.gamma, static_cast<double>(all[i].count - 1 - t)) * *data.samples[i].reward;
        for (int64_t k = t; k < all[i].count; ++k) {
          value -= std::pow(s.gamma, static_cast<double>(k - t)) * kl[k].item<double>();
        }
        values[static_cast<size_t>(t)] = value;
      }
      all[i].advantage = at::tensor(values, at::kDouble);
    }
  }
  const bool whitened = s.normalize_advantages || s.objective == Objective::kReinforcePlusPlus ||
                        s.objective == Objective::kReinforcePlusPlusBaseline;
  if (!whitened) return;
  std::vector<at::Tensor> parts;
  for (const Tokens& tokens : all) parts.push_back(tokens.advantage);
  const at::Tensor joined = at::cat(parts);
  for (Tokens& tokens : all) tokens.advantage = (tokens.advantage - joined.mean()) / at::sqrt(joined.var() + 1e-8);
}

// What the objective maximises, by token.
at::Tensor gain(const RunSettings& s, const Tokens& tokens) {
  const double low = 1 - s.eps_clip, high = 1 + (s.eps_clip_high > 0 ? s.eps_clip_high : s.eps_clip);
  const at::Tensor& a = tokens.advantage;
  const at::Tensor ratio = at::exp(tokens.log_prob - tokens.old);
  at::Tensor gained;
  if (s.objective == Objective::kCispo) {
    gained = at::clamp(ratio, low, high).detach() * a * tokens.log_prob;
  } else if (s.objective == Objective::kGspo) {
    const at::Tensor s_i = at::exp((tokens.log_prob - tokens.old).mean());
    gained = at::minimum(s_i * a, at::clamp(s_i, low, high) * a);
  } else {
    gained = at::minimum(ratio * a, at::clamp(ratio, low, high) * a);
    if (s.eps_clip_c > 0) gained = at::where(a < 0, at::maximum(gained, s.eps_clip_c * a), gained);
  }
  if (s.use_tis) gained = gained * at::clamp(at::exp(tokens.old - tokens.rollout), s.tis_clip_low, s.tis_clip);
  return gained;
}

struct Plain {
  double loss = 0;
  at::Tensor gradients;
};

Plain plain_reference(const RunPlan& run) {
  const RunSettings& s = run.settings;
  DenseModel model(run.config, at::kDouble, uint64_t{5});
  std::vector<Tokens> all;
  double total = 0, longest = 0;
  for (const Sample& sample : run.data.samples) {
    all.push_back(score_plainly(model, s, sample));
    total += static_cast<double>(all.back().count);
    longest = std::max(longest, static_cast<double>(sample.response_length));
  }
  put_advantages(s, run.data, all);
  const auto samples = static_cast<double>(all.size());
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (const Tokens& tokens : all) {
    if (tokens.count == 0) continue;
    at::Tensor each = -gain(s, tokens) - s.entropy_coef * tokens.entropy;
    const KlType type = s.kl_loss_type == KlType::kByUse ? KlType::kK3 : s.kl_loss_type;
    if (s.use_kl_loss) each = each + s.kl_loss_coef * kl_of(type, tokens.log_prob, tokens.ref);
    switch (s.loss_aggregation) {
      case LossAggregation::kTokenMean:
        loss = loss + each.sum() / total;
        break;
      case LossAggregation::kSeqMeanTokenSum:
        loss = loss + each.sum() / samples;
        break;
      case LossAggregation::kSeqMeanTokenMean:
        loss = loss + each.mean() / samples;
        break;
      case LossAggregation::kDrGrpo:
        loss = loss + each.sum() / samples / (s.loss_scale_factor > 0 ? s.loss_scale_factor : longest);
        break;
    }
  }
  loss.backward();
  std::vector<at::Tensor> gradients;
  for (const Parameter& parameter : model.parameters()) gradients.push_back(parameter.value.grad().flatten());
  return {loss.item<double>(), at::cat(gradients)};
}

using Settings = std::function<void(RunPlan&)>;

RunSettings& with(RunPlan& run, Objective objective) {
  run.settings.objective = objective;
  run.settings.loss_aggregation = default_aggregation(objective);
  return run.settings;
}

const std::vector<std::pair<std::string, Settings>>& variants() {
  static const std::vector<std::pair<std::string, Settings>> all = {
      {"ppo, advantages of the data, dual clip",
       [](RunPlan& run) {
         RunSettings& s = with(run, Objective::kPpo);
         s.eps_clip_c = 1.5;
         s.eps_clip_high = 0.28;
         for (Sample& sample : run.data.samples) {
           for (const double old : sample.old_log_probs) sample.advantages.push_back(std::sin(40 * old));
         }
       }},
      {"ppo, whitened",
       [](RunPlan& run) {
         with(run, Objective::kPpo).normalize_advantages = true;
         for (Sample& sample : run.data.samples) {
           for (const double old : sample.old_log_probs) sample.advantages.push_back(2 + std::cos(40 * old));
         }
       }},
      {"grpo with k3 loss and entropy",
       [](RunPlan& run) {
         RunSettings& s = with(run, Objective::kGrpo);
         s.use_kl_loss = true;
         s.kl_loss_coef = 0.1;
         s.entropy_coef = 0.05;
       }},
      {"grpo with k1 loss, seq-mean-token-sum",
       [](RunPlan& run) {
         RunSettings& s = with(run, Objective::kGrpo);
         s.use_kl_loss = true;
         s.kl_loss_coef = 0.1;
         s.kl_loss_type = KlType::kK1;
         s.loss_aggregation = LossAggregation::kSeqMeanTokenSum;
       }},
      {"grpo with k2 loss, seq-mean-token-mean, temperature",
       [](RunPlan& run) {
         RunSettings& s = with(run, Objective::kGrpo);
         s.use_kl_loss = true;
         s.kl_loss_coef = 0.2;
         s.kl_loss_type = KlType::kK2;
         s.loss_aggregation = LossAggregation::kSeqMeanTokenMean;
         s.temperature = 0.7;
       }},
      {"grpo with a k3 reward",
       [](RunPlan& run) {
         RunSettings& s = with(run, Objective::kGrpo);
         s.kl_coef = 0.02;
         s.kl_loss_type = KlType::kK3;
       }},
      {"dr_grpo", [](RunPlan& run) { with(run, Objective::kDrGrpo); }},
      {"dr_grpo with a constant of its own",
       [](RunPlan& run) { with(run, Objective::kDrGrpo).loss_scale_factor = 48; }},
      {"rloo with weights against the rollout",
       [](RunPlan& run) {
         RunSettings& s = with(run, Objective::kRloo);
         s.use_tis = true;
         s.tis_clip = 1.5;
         s.tis_clip_low = 0.5;
       }},
      {"reinforce_plus_plus with a k1 reward",
       [](RunPlan& run) {
         RunSettings& s = with(run, Objective::kReinforcePlusPlus);
         s.kl_coef = 0.05;
         s.gamma = 0.95;
       }},
      {"reinforce_plus_plus_baseline",
       [](RunPlan& run) { with(run, Objective::kReinforcePlusPlusBaseline).kl_coef = 0.01; }},
      {"gspo",
       [](RunPlan& run) {
         RunSettings& s = with(run, Objective::kGspo);
         s.entropy_coef = 0.01;
         s.eps_clip = 0.3;
         s.eps_clip_high = 0.4;
       }},
      {"gspo, token-mean",
       [](RunPlan& run) { with(run, Objective::kGspo).loss_aggregation = LossAggregation::kTokenMean; }},
      {"cispo with weights against the rollout",
       [](RunPlan& run) {
         RunSettings& s = with(run, Objective::kCispo);
         s.use_tis = true;
         s.eps_clip = 1;
         s.eps_clip_high = 0.5;
       }},
  };
  return all;
}

RunPlan rollout_plan() {
  RunPlan run;
  run.settings = dynamic_settings(4, 64, 16);
  run.settings.parallel.log_probs_max_tokens_per_gpu = 32;
  run.data = rollouts();
  run.make_rl = true;
  run.log_probs = false;
  return run;
}

// Of variant v; made once, because it does not depend on the layout.
const Plain& reference_of(size_t v) {
  static std::map<size_t, Plain> made;
  if (!made.contains(v)) {
    RunPlan run = rollout_plan();
    variants()[v].second(run);
    made.emplace(v, plain_reference(run));
  }
  return made.at(v);
}

void expect_equals(const RunOutcome& got, const Plain& plain, const std::string& what) {
  EXPECT_NEAR(got.loss, plain.loss, 1e-10 * std::max(1.0, std::abs(plain.loss))) << what;
  const double norm = plain.gradients.norm().item<double>();
  EXPECT_LE((got.gradients - plain.gradients).norm().item<double>(), 1e-10 * norm) << what;
  EXPECT_GT(norm, 1e-3) << what;
}

TEST(Objectives, equal_the_plain_reference_for_mixed_cp_sizes) {
  std::vector<RunPlan> runs;
  std::vector<std::string> names;
  std::vector<size_t> references;
  for (size_t v = 0; v < variants().size(); ++v) {
    const auto& [name, apply] = variants()[v];
    RunPlan run = rollout_plan();
    apply(run);
    for (const CpPolicy policy : {CpPolicy::kUniform, CpPolicy::kMixed, CpPolicy::kStatic}) {
      run.settings.parallel.cp_policy = policy;
      run.settings.parallel.cp_policy_given = true;
      run.settings.log_prob_chunk_tokens = policy == CpPolicy::kMixed ? 3 : 1024;  // many chunks of a pack, and one
      runs.push_back(run);
      names.push_back(name + ", " + std::string(to_string(policy)));
      references.push_back(v);
    }
  }
  const std::vector<RunOutcome> outcomes = run_layouts(runs);
  for (size_t i = 0; i < runs.size(); ++i) expect_equals(outcomes[i], reference_of(references[i]), names[i]);
  EXPECT_THAT(outcomes[0].cp_sizes, ::testing::IsSupersetOf({2, 4}));
  EXPECT_THAT(outcomes[1].cp_sizes, ::testing::IsSupersetOf({1, 2, 4}));
  EXPECT_THAT(outcomes[2].cp_sizes, ::testing::ElementsAre(4));
}

TEST(Objectives, equal_the_plain_reference_on_one_rank_and_on_two) {
  for (const int world : {1, 2}) {
    std::vector<RunPlan> runs;
    for (const auto& [name, apply] : variants()) {
      RunPlan run = rollout_plan();
      run.settings.parallel = dynamic_settings(world, 64, 64 / world).parallel;
      apply(run);
      runs.push_back(run);
    }
    const std::vector<RunOutcome> outcomes = run_layouts(runs);
    for (size_t i = 0; i < runs.size(); ++i) {
      expect_equals(outcomes[i], reference_of(i), variants()[i].first + ", ranks " + std::to_string(world));
    }
  }
}

TEST(Objectives, parts_of_the_loss_add_up) {
  RunPlan run = rollout_plan();
  variants()[2].second(run);
  const RunOutcome got = run_layout(run);
  // Token-mean: the weighted entropy is its mean.
  EXPECT_NEAR(got.sums.loss, got.sums.policy_loss + 0.1 * got.sums.kl_loss - 0.05 * got.metrics.entropy, 1e-12);
  EXPECT_EQ(got.metrics.policy_loss, got.sums.policy_loss);
  EXPECT_EQ(got.metrics.kl_loss, got.sums.kl_loss);
  EXPECT_GT(*got.metrics.clip_fraction, 0);
  double length = 0, gap = 0, tokens = 0;
  for (const Sample& sample : run.data.samples) {
    length += static_cast<double>(sample.response_length) / static_cast<double>(run.data.samples.size());
    const at::Tensor difference =
        at_loss_tokens(sample, sample.old_log_probs) - at_loss_tokens(sample, sample.rollout_log_probs);
    gap += difference.abs().sum().item<double>();
    tokens += static_cast<double>(difference.numel());
  }
  EXPECT_NEAR(*got.metrics.response_length_mean, length, 1e-12);
  EXPECT_NEAR(*got.metrics.train_rollout_logprob_abs_diff, gap / tokens, 1e-12);
  EXPECT_FALSE(got.metrics.truncated_ratio.has_value());
  EXPECT_FALSE(got.metrics.tis_mean.has_value());
}

TEST(Objectives, weights_against_the_rollout_and_truncation_are_reported) {
  RunPlan run = rollout_plan();
  RunSettings& s = with(run, Objective::kRloo);
  s.use_tis = true;
  s.tis_clip = 1.5;
  s.tis_clip_low = 0.5;
  s.eps_clip_c = 1.1;
  run.data.samples[0].truncated = true;
  run.data.samples[1].truncated = run.data.samples[2].truncated = run.data.samples[3].truncated = false;
  const RunOutcome got = run_layout(run);
  double sum = 0, bounded = 0, tokens = 0;
  for (const Sample& sample : run.data.samples) {
    const at::Tensor raw =
        at::exp(at_loss_tokens(sample, sample.old_log_probs) - at_loss_tokens(sample, sample.rollout_log_probs));
    sum += raw.clamp(0.5, 1.5).sum().item<double>();
    bounded += raw.lt(0.5).logical_or(raw.gt(1.5)).sum().item<double>();
    tokens += static_cast<double>(raw.numel());
  }
  EXPECT_NEAR(*got.metrics.tis_mean, sum / tokens, 1e-12);
  EXPECT_NEAR(*got.metrics.tis_clip_fraction, bounded / tokens, 1e-12);
  EXPECT_EQ(*got.metrics.truncated_ratio, 0.25);  // of those that say so
  EXPECT_GT(*got.metrics.dual_clip_fraction, 0);
  EXPECT_FALSE(got.metrics.kl_loss.has_value());
}

TEST(Objectives, ratio_is_one_before_the_first_update_whatever_the_budgets) {
  std::vector<RunPlan> runs;
  for (const Objective objective : {Objective::kPpo, Objective::kGrpo, Objective::kDrGrpo, Objective::kRloo,
                                    Objective::kReinforcePlusPlus, Objective::kGspo, Objective::kCispo}) {
    for (const int64_t budget : {16, 32, 64}) {
      RunPlan run = rollout_plan();
      for (Sample& sample : run.data.samples) {
        sample.old_log_probs.clear();
        sample.ref_log_probs.clear();
        if (objective == Objective::kPpo) sample.advantages.assign(static_cast<size_t>(sample.response_length), 1);
      }
      with(run, objective).dtype = "float32";
      run.settings.use_kl_loss = true;
      run.settings.parallel.log_probs_max_tokens_per_gpu = budget;
      runs.push_back(run);
    }
  }
  for (const RunOutcome& outcome : run_layouts(runs)) {
    EXPECT_LE(outcome.sums.ratio_deviation, 1e-5);
    EXPECT_EQ(outcome.sums.clipped, 0);
    // Without --ref-load the reference is the start itself: one pass gives both.
    EXPECT_EQ(outcome.rl.ref_log_probs, outcome.rl.old_log_probs);
    EXPECT_LE(std::abs(outcome.sums.kl_loss), 1e-9);
  }
}

TEST(Reference, its_log_probs_come_from_its_weights_and_the_policy_is_as_before) {
  const DenseModel other(tiny_config(), at::kDouble, uint64_t{77});
  const ReferenceWeights reference = ReferenceWeights::copy_of(other);
  RunPlan run = rollout_plan();
  with(run, Objective::kGrpo).use_kl_loss = true;
  run.settings.kl_loss_coef = 0.1;
  run.reference = &reference;
  for (Sample& sample : run.data.samples) sample.old_log_probs.clear();
  const RunOutcome got = run_layout(run);
  DenseModel policy(tiny_config(), at::kDouble, uint64_t{5});
  for (size_t i = 0; i < run.data.samples.size(); ++i) {
    const Sample& sample = run.data.samples[i];
    using Side = std::pair<const DenseModel*, const std::vector<std::vector<double>>*>;
    for (const auto& [model, values] : {Side{&policy, &got.rl.old_log_probs}, Side{&other, &got.rl.ref_log_probs}}) {
      const at::Tensor expected = score_plainly(*model, run.settings, sample).log_prob;
      EXPECT_TRUE(at::allclose(at_loss_tokens(sample, (*values)[i]), expected, 1e-10, 1e-10)) << i;
      EXPECT_EQ((*values)[i].size(), static_cast<size_t>(sample.response_length));
    }
  }
  const FlatParameters flat(policy.parameters());
  EXPECT_TRUE(at::equal(got.weights, const_cast<FlatParameters&>(flat).values()));
}

TEST(Reference, a_failed_pass_leaves_the_policy_as_it_was) {
  DenseModel policy(tiny_config(), at::kDouble, uint64_t{5});
  const ReferenceWeights own = ReferenceWeights::copy_of(policy);
  const ReferenceWeights other = ReferenceWeights::copy_of(DenseModel(tiny_config(), at::kDouble, uint64_t{77}));
  EXPECT_THROW(other.run_with(policy,
                              [&] {
                                EXPECT_TRUE(at::equal(policy.parameters()[0].value, other.values()[0]));
                                throw RunError("lost");
                              }),
               RunError);
  for (size_t i = 0; i < own.values().size(); ++i) {
    EXPECT_TRUE(at::equal(policy.parameters()[i].value, own.values()[i]));
  }
}

TEST(Reference, is_loaded_from_a_folder_of_the_same_model) {
  ModelConfig config = tiny_config();
  config.json.clear();
  const std::string folder = ::testing::TempDir() + "ringfold_reference";
  export_hf(DenseModel(config, at::kDouble, uint64_t{9}), folder);
  const ReferenceWeights loaded = ReferenceWeights::load(config, at::kDouble, folder);
  const DenseModel model(config, at::kDouble, uint64_t{9});
  for (size_t i = 0; i < loaded.values().size(); ++i) {
    EXPECT_TRUE(at::equal(loaded.values()[i], model.parameters()[i].value));
  }
  config.num_attention_heads = 2;
  try {
    ReferenceWeights::load(config, at::kDouble, folder);
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("num_attention_heads: got 4, expected 2 as in the policy"));
  }
}

TEST(TokenLoss, slices_add_up_to_the_pack) {
  const int64_t n = 23;
  const auto values = [](double low, double high, uint64_t seed) {
    std::vector<double> v;
    for (int64_t i = 0; i < n; ++i) {
      seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
      v.push_back(low + (high - low) * static_cast<double>(seed >> 11) / 9007199254740992.0);
    }
    return at::tensor(v, at::kDouble);
  };
  TokenScores scores{values(-3, -1, 1), values(0, 2, 2), at::Tensor()};
  const TokenTerms terms{values(0, 1, 3),     values(-3, -1, 4),         values(-1, 1, 5), values(-3, -1, 6),
                         values(0.5, 1.5, 7), at::zeros({n}, at::kLong), values(0, 1, 8),  values(-1, 1, 9)};
  for (size_t o = 0; o < objective_names().size(); ++o) {
    RunSettings settings;
    settings.objective = static_cast<Objective>(o);
    settings.use_kl_loss = settings.use_tis = settings.objective != Objective::kSft;
    settings.kl_loss_coef = 0.1;
    settings.entropy_coef = 0.1;
    settings.eps_clip_c = 1.2;
    scores.log_prob_n = scores.log_prob_n.detach().requires_grad_(true);
    scores.entropy_n = scores.entropy_n.detach().requires_grad_(true);
    const ObjectiveResult whole = token_loss(settings, scores, terms);
    whole.loss.backward();
    const at::Tensor expected = scores.log_prob_n.grad().clone(), expected_entropy = scores.entropy_n.grad().clone();
    scores.log_prob_n.mutable_grad() = at::Tensor();
    scores.entropy_n.mutable_grad() = at::Tensor();
    at::Tensor sums = at::zeros({LossSums::kCount}, at::kDouble);
    for (int64_t begin = 0; begin < n; begin += 7) {
      const int64_t end = std::min(n, begin + 7);
      const TokenScores part{scores.log_prob_n.slice(0, begin, end), scores.entropy_n.slice(0, begin, end), {}};
      const ObjectiveResult result = token_loss(settings, part, terms.rows(begin, end - begin));
      result.loss.backward();
      sums = add_sums(sums, result.sums_n);
    }
    EXPECT_TRUE(at::allclose(sums, whole.sums_n, 1e-13, 1e-13)) << objective_names()[o];
    EXPECT_TRUE(at::allclose(scores.log_prob_n.grad(), expected, 1e-13, 0)) << objective_names()[o];
    EXPECT_TRUE(at::allclose(scores.entropy_n.grad(), expected_entropy, 1e-13, 0)) << objective_names()[o];
  }
}

}  // namespace
}  // namespace ringfold
