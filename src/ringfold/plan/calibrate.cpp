// Levenberg-Marquardt over the logarithms of the model's terms, with weights that make outliers count little. Weak
// priors keep the terms that no pack shows where they were, and the attention rates at neighbouring lengths together.
#include "ringfold/plan/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ringfold/base/error.h"
#include "ringfold/base/pow2.h"

namespace ringfold {
namespace {

constexpr double kTermSpread = 5;     // prior of a term: its start, within a factor e^5
constexpr double kRateSpread = 0.35;  // of one attention rate around the common scale
constexpr double kLeastNoise = 0.002;

// One term: its key in the file, and where it stands in the model.
struct Term {
  std::string key;
  double CostModel::*member;
};

const std::vector<Term>& terms() {
  static const std::vector<Term> all = {{"fixed_us", &CostModel::fixed_us},
                                        {"us_per_token", &CostModel::us_per_token},
                                        {"hop_latency_us", &CostModel::hop_latency_us},
                                        {"node_bytes_per_us", &CostModel::node_bytes_per_us},
                                        {"cross_node_hop_latency_us", &CostModel::cross_node_hop_latency_us},
                                        {"cross_node_bytes_per_us", &CostModel::cross_node_bytes_per_us},
                                        {"us_per_vision_token", &CostModel::us_per_vision_token}};
  return all;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double predicted_us(const CostModel& model, const CalibrationPack& pack) {
  return model.pack_us(pack.lengths, pack.cp_size, pack.vision_tokens);
}

void check(std::span<const MeasuredPack> measured) {
  if (measured.size() < 3) {
    throw UsageError(
        fmt::format("[calibrate] too few measured packs: got {}, expected at least 3. Hint: measure the "
                    "packs that `ringfold bench --calibrate` asks for",
                    measured.size()));
  }
  for (size_t i = 0; i < measured.size(); ++i) {
    const auto& [pack, us] = measured[i];
    if (!(us > 0) || !std::isfinite(us)) {
      throw UsageError(
          fmt::format("[calibrate] pack {}: got a time of {} us, expected more than 0. Hint: is the clock "
                      "read after the device has finished?",
                      i, us));
    }
    const bool lengths_hold = !pack.lengths.empty() && std::all_of(pack.lengths.begin(), pack.lengths.end(),
                                                                   [](int64_t length) { return length > 0; });
    if (lengths_hold && pack.cp_size.value() > 0) continue;
    throw UsageError(
        fmt::format("[calibrate] pack {}: got no samples, an empty one or CP size {}, expected samples of "
                    "at least 1 token. Hint: leave it out",
                    i, pack.cp_size.value()));
  }
}

// A times x = b for a small symmetric positive matrix, by Gauss-Jordan with pivoting.
std::vector<double> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t col = 0; col < n; ++col) {
    size_t pivot = col;
    for (size_t row = col + 1; row < n; ++row) {
      if (std::abs(a[row][col]) > std::abs(a[pivot][col])) pivot = row;
    }
    std::swap(a[col], a[pivot]);
    std::swap(b[col], b[pivot]);
    for (size_t row = 0; row < n; ++row) {
      if (row == col) continue;
      const double factor = a[row][col] / a[col][col];
      for (size_t k = col; k < n; ++k) a[row][k] -= factor * a[col][k];
      b[row] -= factor * b[col];
    }
  }
  for (size_t i = 0; i < n; ++i) b[i] /= a[i][i];
  return b;
}

class Fit {
 public:
  Fit(std::span<const MeasuredPack> measured, const CostModel& shape) : measured_(measured), start_(shape) {
    if (start_.us_per_vision_token <= 0) {
      // A text model has no such term to start from; that of a text token is near enough.
      for (const MeasuredPack& m : measured) {
        const auto& vision = m.pack.vision_tokens;
        if (std::any_of(vision.begin(), vision.end(), [](int64_t tokens) { return tokens > 0; })) {
          start_.us_per_vision_token = start_.us_per_token;
        }
      }
    }
    // The machine may be a thousand times slower than the one of `shape`.
    std::vector<double> ratios;
    for (const MeasuredPack& m : measured) ratios.push_back(m.us / predicted_us(start_, m.pack));
    const double slower = median(ratios);
    for (double CostModel::*time : {&CostModel::fixed_us, &CostModel::us_per_token, &CostModel::hop_latency_us,
                                    &CostModel::cross_node_hop_latency_us, &CostModel::us_per_vision_token}) {
      start_.*time *= slower;
    }
    for (double CostModel::*rate : {&CostModel::node_bytes_per_us, &CostModel::cross_node_bytes_per_us}) {
      start_.*rate /= slower;
    }
    for (double& rate : start_.rate_flops_per_us) rate /= slower;
    for (const Term& term : terms()) {
      if (start_.*term.member > 0) fitted_.push_back(&term);
    }
    values_.assign(fitted_.size() + 1 + start_.rate_flops_per_us.size(), 0.0);
    weights_.assign(measured.size(), 1.0);
  }

  Calibration run() {
    constexpr int kRounds = 12;
    for (int round = 0; round < kRounds; ++round) {
      descend();
      reweigh();
    }
    return result();
  }

 private:
  // values_: logarithms of factors on the start: terms, common scale of the attention rates, each rate.
  CostModel model_at(const std::vector<double>& values) const {
    CostModel model = start_;
    for (size_t t = 0; t < fitted_.size(); ++t) model.*fitted_[t]->member *= std::exp(values[t]);
    for (size_t k = 0; k < model.rate_flops_per_us.size(); ++k) {
      model.rate_flops_per_us[k] *= std::exp(values[fitted_.size()] + values[fitted_.size() + 1 + k]);
    }
    return model;
  }

  double prior_spread(size_t value) const { return value <= fitted_.size() ? kTermSpread : kRateSpread; }

  std::vector<double> errors_at(const std::vector<double>& values) const {
    const CostModel model = model_at(values);
    std::vector<double> errors;
    for (const MeasuredPack& m : measured_) errors.push_back(std::log(predicted_us(model, m.pack) / m.us));
    return errors;
  }

  double loss(const std::vector<double>& values, const std::vector<double>& errors) const {
    double total = 0;
    for (size_t i = 0; i < errors.size(); ++i) total += weights_[i] * errors[i] * errors[i] / (noise_ * noise_);
    for (size_t v = 0; v < values.size(); ++v) total += std::pow(values[v] / prior_spread(v), 2);
    return total;
  }

  std::vector<std::vector<double>> jacobian(const std::vector<double>& errors) const {
    constexpr double kStep = 1e-5;
    std::vector<std::vector<double>> columns;
    for (size_t v = 0; v < values_.size(); ++v) {
      std::vector<double> moved = values_;
      moved[v] += kStep;
      std::vector<double> column = errors_at(moved);
      for (size_t i = 0; i < column.size(); ++i) column[i] = (column[i] - errors[i]) / kStep;
      columns.push_back(std::move(column));
    }
    return columns;
  }

  void descend() {
    constexpr int kSteps = 60;
    double damping = 1e-3;
    std::vector<double> errors = errors_at(values_);
    double now = loss(values_, errors);
    for (int step = 0; step < kSteps && damping < 1e9; ++step) {
      const auto slopes = jacobian(errors);
      const size_t n = values_.size();
      std::vector<std::vector<double>> normal(n, std::vector<double>(n, 0.0));
      std::vector<double> gradient(n, 0.0);
      for (size_t a = 0; a < n; ++a) {
        for (size_t i = 0; i < errors.size(); ++i) {
          const double weighted = weights_[i] * slopes[a][i] / (noise_ * noise_);
          gradient[a] -= weighted * errors[i];
          for (size_t b = 0; b < n; ++b) normal[a][b] += weighted * slopes[b][i];
        }
        const double prior = 1 / (prior_spread(a) * prior_spread(a));
        gradient[a] -= prior * values_[a];
        normal[a][a] = (normal[a][a] + prior) * (1 + damping);
      }
      std::vector<double> next = solve(normal, gradient);
      for (size_t a = 0; a < n; ++a) next[a] = std::clamp(values_[a] + std::clamp(next[a], -2.0, 2.0), -30.0, 30.0);
      std::vector<double> next_errors = errors_at(next);
      const double then = loss(next, next_errors);
      if (!(then < now)) {
        damping *= 8;
        continue;
      }
      const bool settled = now - then < 1e-9 * now;
      values_ = std::move(next);
      errors = std::move(next_errors);
      now = then;
      damping = std::max(damping / 5, 1e-12);
      if (settled) break;
    }
  }

  // Cauchy weights around the median error.
  void reweigh() {
    const std::vector<double> errors = errors_at(values_);
    std::vector<double> sizes;
    for (const double error : errors) sizes.push_back(std::abs(error));
    noise_ = std::max(1.4826 * median(sizes), kLeastNoise);
    for (size_t i = 0; i < errors.size(); ++i) {
      const double far = sizes[i] / (2.4 * noise_);
      weights_[i] = 1 / (1 + far * far);
    }
  }

  // A term shows if the packs together would notice a change of it by half.
  std::vector<std::string> unmeasured() const {
    const auto slopes = jacobian(errors_at(values_));
    const auto shows = [&](size_t value) {
      double sum = 0;
      for (size_t i = 0; i < measured_.size(); ++i) sum += weights_[i] * slopes[value][i] * slopes[value][i];
      return 0.5 * std::sqrt(sum) > noise_;
    };
    std::vector<std::string> keys;
    for (size_t t = 0; t < fitted_.size(); ++t) {
      if (!shows(t)) keys.push_back(fitted_[t]->key);
    }
    for (size_t k = 0; k < start_.rate_flops_per_us.size(); ++k) {
      if (!shows(fitted_.size() + 1 + k)) {
        keys.push_back(fmt::format("rate_flops_per_us at {} tokens", start_.rate_length_tokens[k]));
      }
    }
    return keys;
  }

  Calibration result() const {
    Calibration result;
    result.model = model_at(values_);
    result.packs = static_cast<int>(measured_.size());
    std::vector<double> sizes;
    for (const double error : errors_at(values_)) sizes.push_back(std::abs(std::expm1(error)));
    result.median_error = median(sizes);
    const double far = 5 * std::max(noise_, kLeastNoise);
    for (const double size : sizes) {
      if (size > far) {
        ++result.outliers;
      } else {
        result.worst_error = std::max(result.worst_error, size);
      }
    }
    result.unmeasured = unmeasured();
    return result;
  }

  std::span<const MeasuredPack> measured_;
  CostModel start_;
  std::vector<const Term*> fitted_;
  std::vector<double> values_;
  std::vector<double> weights_;
  double noise_ = 0.05;
};

}  // namespace

std::vector<CalibrationPack> calibration_packs(int largest_cp, int64_t budget, int64_t longest) {
  constexpr int64_t kShortest = 128;
  std::vector<CalibrationPack> packs;
  for (int c = 1; c <= largest_cp; c *= 2) {
    const int64_t room = std::min(budget * c, longest);
    // One sample of each length: all terms together.
    for (int64_t length = std::min(kShortest * c, room); length > 0; length = std::min(2 * length, room)) {
      packs.push_back({CpSize{c}, {length}, {}});
      if (length == room) break;
    }
    // Packs of equal samples: the same tokens with ever less attention tell linear from quadratic.
    for (int64_t count = 2; count <= 16; count *= 2) {
      const int64_t length = std::min(budget * c / count / (2 * c) * (2 * c), longest);
      if (length < kShortest) break;
      packs.push_back({CpSize{c}, std::vector<int64_t>(static_cast<size_t>(count), length), {}});
    }
  }
  return packs;
}

Calibration calibrate(std::span<const MeasuredPack> measured, const CostModel& shape) {
  check(measured);
  return Fit(measured, shape).run();
}

}  // namespace ringfold
