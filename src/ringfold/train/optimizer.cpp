#include "ringfold/train/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

namespace ringfold {

FlatParameters::FlatParameters(std::vector<Parameter>& parameters) {
  const c10::NoGradGuard no_grad;
  int64_t total = 0;
  for (const Parameter& parameter : parameters) {
    segments_.push_back(
        {parameter.name, total, parameter.value.numel(), parameter.value.sizes().vec(), parameter.weight_decay});
    total += parameter.value.numel();
  }
  const auto options = parameters.front().value.options().requires_grad(false);
  values_ = at::empty({total}, options);
  gradients_ = at::zeros({total}, options);
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor& value = parameters[i].value;
    const Segment& segment = segments_[i];
    at::Tensor view = values_.narrow(0, segment.begin, segment.size).view(segment.shape);
    view.copy_(value);
    value.set_data(view);
    value.mutable_grad() = gradients_.narrow(0, segment.begin, segment.size).view(segment.shape);
  }
}

void FlatParameters::zero_gradients() {
  gradients_.zero_();
}

std::vector<NamedTensor> FlatParameters::named_gradients() const {
  std::vector<NamedTensor> named;
  for (const Segment& segment : segments_) {
    named.push_back({segment.name, gradients_.narrow(0, segment.begin, segment.size).view(segment.shape)});
  }
  return named;
}

double FlatParameters::gradient_norm() const {
  // In pieces, so that the fp64 copy stays small.
  constexpr int64_t kPiece = int64_t{1} << 22;
  double sum = 0;
  for (int64_t begin = 0; begin < gradients_.numel(); begin += kPiece) {
    const auto piece = gradients_.narrow(0, begin, std::min(kPiece, gradients_.numel() - begin)).to(at::kDouble);
    sum += piece.dot(piece).item<double>();
  }
  return std::sqrt(sum);
}

AdamW::AdamW(FlatParameters& parameters, const AdamWOptions& options)
    : parameters_(parameters),
      options_(options),
      first_moment_(at::zeros_like(parameters.values())),
      second_moment_(at::zeros_like(parameters.values())) {}

void AdamW::step(double lr, double gradient_scale) {
  const c10::NoGradGuard no_grad;
  ++steps_;
  const double correction1 = 1 - std::pow(options_.beta1, static_cast<double>(steps_));
  const double correction2 = 1 - std::pow(options_.beta2, static_cast<double>(steps_));
  at::Tensor& gradient = parameters_.gradients();
  if (gradient_scale != 1) gradient.mul_(gradient_scale);
  first_moment_.mul_(options_.beta1).add_(gradient, 1 - options_.beta1);
  second_moment_.mul_(options_.beta2).addcmul_(gradient, gradient, 1 - options_.beta2);
  at::Tensor& values = parameters_.values();
  if (options_.weight_decay != 0) {
    for (const FlatParameters::Segment& segment : parameters_.segments()) {
      if (segment.weight_decay) values.narrow(0, segment.begin, segment.size).mul_(1 - lr * options_.weight_decay);
    }
  }
  const auto denominator = (second_moment_.sqrt() / std::sqrt(correction2)).add_(options_.eps);
  values.addcdiv_(first_moment_, denominator, -lr / correction1);
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0 || norm <= max_norm) return 1;
  return max_norm / (norm + 1e-6);
}

}  // namespace ringfold
