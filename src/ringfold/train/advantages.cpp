#include "ringfold/train/advantages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ringfold/base/error.h"
#include "ringfold/train/objective_names.h"

namespace ringfold {
namespace {

using Estimator = AdvantageEstimator;
using PerToken = std::vector<std::vector<double>>;

[[noreturn]] void fail_missing(const RunSettings& settings, const Dataset& data, const Sample& sample,
                               const std::string& field, const std::string& hint) {
  throw DataError(fmt::format("[data] {}:{} (sample {}): --objective {} needs the field `{}`. Hint: {}", data.file,
                              sample.line, sample.id.value(), name_of(settings.objective), field, hint));
}

void require_fields(const RunSettings& settings, const Dataset& data, Estimator estimator) {
  const bool grouped = estimator != Estimator::kReinforcePlusPlus;
  for (const Sample& sample : data.samples) {
    if (estimator == Estimator::kData) {
      if (!sample.advantages.empty() || sample.response_length == 0) continue;
      fail_missing(
          settings, data, sample, "advantages",
          "give `advantages` for every sample (no critic is built), or --advantage-estimator grpo, which makes "
          "them from `reward` and `group`");
    }
    const std::string fields = grouped ? "`reward` and `group` (prompt id)" : "`reward`";
    const std::string hint = fmt::format("give {} for every sample, or use --objective sft", fields);
    if (!sample.reward) fail_missing(settings, data, sample, "reward", hint);
    if (grouped && !sample.group) fail_missing(settings, data, sample, "group", hint);
  }
}

bool is_loss_token(const Sample& sample, size_t response_token) {
  return sample.loss_mask[static_cast<size_t>(sample.response_begin()) + response_token] != 0;
}

// Rewards of samples, with the KL of their loss tokens taken off.
std::vector<double> sample_rewards(const RunSettings& settings, const Dataset& data, const PerToken& kl) {
  std::vector<double> rewards;
  for (size_t i = 0; i < data.samples.size(); ++i) {
    rewards.push_back(*data.samples[i].reward);
    for (size_t t = 0; !kl.empty() && t < kl[i].size(); ++t) {
      if (is_loss_token(data.samples[i], t)) rewards.back() -= settings.kl_coef * kl[i][t];
    }
  }
  return rewards;
}

double of_group(Estimator estimator, double reward, double mean, double deviation, double count) {
  if (estimator == Estimator::kGrpo) return (reward - mean) / (deviation + 1e-6);
  if (estimator == Estimator::kRloo) return (reward - mean) * count / (count - 1);
  return reward - mean;
}

void by_group(const Dataset& data, Estimator estimator, const std::vector<double>& rewards, Advantages& result) {
  std::map<std::string, std::vector<size_t>> groups;  // ordered, so that every rank sums alike
  for (size_t i = 0; i < data.samples.size(); ++i) groups[*data.samples[i].group].push_back(i);
  result.groups = static_cast<int64_t>(groups.size());
  for (const auto& [name, members] : groups) {
    const auto count = static_cast<double>(members.size());
    double mean = 0;
    for (const size_t i : members) mean += rewards[i] / count;
    double squares = 0;
    for (const size_t i : members) squares += std::pow(rewards[i] - mean, 2);
    if (members.size() < 2) {
      ++result.single_groups;
      continue;
    }
    if (squares == 0) ++result.flat_groups;
    const double deviation = std::sqrt(squares / (count - 1));
    for (const size_t i : members) result.per_sample[i] = of_group(estimator, rewards[i], mean, deviation, count);
  }
}

// Discounted sums of what follows each loss token; tokens that are none (the environment's) neither add nor discount.
PerToken returns(const RunSettings& settings, const Dataset& data, const PerToken& kl) {
  PerToken all;
  for (size_t i = 0; i < data.samples.size(); ++i) {
    const Sample& sample = data.samples[i];
    std::vector<double>& mine = all.emplace_back(static_cast<size_t>(sample.response_length), 0.0);
    double follows = 0;
    bool last = true;
    for (size_t t = mine.size(); t-- > 0;) {
      if (!is_loss_token(sample, t)) continue;
      follows *= settings.gamma;
      if (last) follows += *sample.reward;
      if (!kl.empty()) follows -= settings.kl_coef * kl[i][t];
      last = false;
      mine[t] = follows;
    }
  }
  return all;
}

// To mean 0 and deviation 1 over all loss tokens.
void whiten(const Dataset& data, Advantages& result) {
  const auto each = [&](const auto& visit) {
    for (size_t i = 0; i < data.samples.size(); ++i) {
      if (result.per_token.empty()) {
        visit(result.per_sample[i], static_cast<double>(data.samples[i].loss_tokens()));
        continue;
      }
      for (size_t t = 0; t < result.per_token[i].size(); ++t) {
        visit(result.per_token[i][t], is_loss_token(data.samples[i], t) ? 1.0 : 0.0);
      }
    }
  };
  double tokens = 0, mean = 0, squares = 0;
  each([&](double& value, double count) {
    tokens += count;
    mean += count * value;
  });
  if (tokens < 2) return;
  mean /= tokens;
  each([&](double& value, double count) { squares += count * std::pow(value - mean, 2); });
  const double scale = 1 / std::sqrt(squares / (tokens - 1) + 1e-8);
  each([&](double& value, double) { value = (value - mean) * scale; });
}

}  // namespace

bool has_own_advantages(const Dataset& data) {
  return std::all_of(data.samples.begin(), data.samples.end(),
                     [](const Sample& sample) { return !sample.advantages.empty() || sample.response_length == 0; });
}

Advantages compute_advantages(const RunSettings& settings, const Dataset& data, const PerToken& kl) {
  const bool own = has_own_advantages(data);
  const Estimator estimator = own ? Estimator::kData : estimator_of(settings);
  require_fields(settings, data, estimator);
  Advantages result;
  result.per_sample.assign(data.samples.size(), 0.0);
  if (estimator == Estimator::kData) {
    if (!own || !settings.normalize_advantages) return result;
    for (const Sample& sample : data.samples) result.per_token.push_back(sample.advantages);
  } else if (estimator == Estimator::kReinforcePlusPlus) {
    result.per_token = returns(settings, data, kl);
  } else {
    by_group(data, estimator, sample_rewards(settings, data, kl), result);
  }
  const bool whitened =
      estimator == Estimator::kReinforcePlusPlus || estimator == Estimator::kReinforcePlusPlusBaseline;
  if (whitened || settings.normalize_advantages) whiten(data, result);
  return result;
}

}  // namespace ringfold
