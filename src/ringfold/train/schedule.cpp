#include "ringfold/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ringfold {

double learning_rate(const RunSettings& settings, int64_t step, int64_t total_steps) {
  const int64_t warmup = settings.lr_warmup_steps;
  if (step <= warmup) return settings.lr * static_cast<double>(step) / static_cast<double>(warmup);
  if (settings.lr_decay_style == LrDecay::kConstant) return settings.lr;
  const double span = static_cast<double>(std::max<int64_t>(1, total_steps - warmup));
  const double progress = std::min(1.0, static_cast<double>(step - 1 - warmup) / span);
  return settings.min_lr + (settings.lr - settings.min_lr) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

int64_t total_steps(const RunSettings& settings, int64_t steps_per_epoch) {
  const double epochs = settings.epochs > 0 ? settings.epochs : 1;
  // The cap keeps an absurd number of epochs a number of steps.
  const auto by_epochs = static_cast<int64_t>(std::min(1e15, std::ceil(epochs * static_cast<double>(steps_per_epoch))));
  if (settings.max_steps <= 0) return by_epochs;
  return settings.epochs > 0 ? std::min(settings.max_steps, by_epochs) : settings.max_steps;
}

}  // namespace ringfold
