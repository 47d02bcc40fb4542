#include "ringfold/train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

// In pieces, so that temporaries stay small beside the model; a GPU wants long ones.
template <typename Body>
void for_each_piece(const at::Tensor& flat, Body body) {
  const int64_t piece = flat.is_cpu() ? int64_t{1} << 22 : int64_t{1} << 27;
  for (int64_t begin = 0; begin < flat.numel(); begin += piece) body(begin, std::min(piece, flat.numel() - begin));
}

}  // namespace

FlatParameters::FlatParameters(std::vector<Parameter>& parameters) {
  const c10::NoGradGuard no_grad;
  int64_t total = 0;
  for (const Parameter& parameter : parameters) {
    segments_.push_back(
        {parameter.name, total, parameter.value.numel(), parameter.value.sizes().vec(), parameter.weight_decay});
    total += parameter.value.numel();
  }
  const auto options = parameters.front().value.options().requires_grad(false);
  const at::ScalarType wide = at::toOpMathType(parameters.front().value.scalar_type());
  values_ = at::empty({total}, options);
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor& value = parameters[i].value;
    const Segment& segment = segments_[i];
    at::Tensor view = values_.narrow(0, segment.begin, segment.size).view(segment.shape);
    view.copy_(value);
    value.set_data(view);
    leaves_.push_back(value);
  }
  attach_gradients();
  masters_ = values_.to(wide);
}

void FlatParameters::publish_masters() {
  if (!masters_.is_same(values_)) values_.copy_(masters_);
}

void FlatParameters::attach_gradients() {
  gradients_ = at::zeros(values_.sizes(), values_.options().dtype(at::toOpMathType(values_.scalar_type())));
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Segment& segment = segments_[i];
    leaves_[i].mutable_grad() = gradients_.narrow(0, segment.begin, segment.size).view(segment.shape);
  }
}

void FlatParameters::zero_gradients() {
  RINGFOLD_ASSERT(!asleep_, "a step needs gradients: wake first");
  gradients_.zero_();
}

void FlatParameters::sleep() {
  if (asleep_) return;
  asleep_ = true;
  for (at::Tensor& leaf : leaves_) leaf.mutable_grad() = at::Tensor();
  gradients_ = at::Tensor();
  if (!masters_.is_same(values_)) masters_ = masters_.cpu();
}

void FlatParameters::wake() {
  if (!asleep_) return;
  asleep_ = false;
  const c10::NoGradGuard no_grad;
  attach_gradients();
  masters_ = masters_.to(values_.device());
}

std::vector<NamedTensor> FlatParameters::parts_of(const at::Tensor& flat) const {
  std::vector<NamedTensor> named;
  for (const Segment& segment : segments_) {
    named.push_back({segment.name, flat.narrow(0, segment.begin, segment.size).view(segment.shape)});
  }
  return named;
}

double FlatParameters::gradient_norm() const {
  if (gradients_.is_cuda() && gradients_.scalar_type() == at::kFloat) {
    return std::sqrt(fused::sum_of_squares(gradients_).item<double>());
  }
  const at::Tensor sum = at::zeros({}, gradients_.options().dtype(at::kDouble));
  for_each_piece(gradients_, [&](int64_t begin, int64_t size) {
    const at::Tensor piece = gradients_.narrow(0, begin, size).to(at::kDouble);
    sum.add_(piece.dot(piece));
  });
  return std::sqrt(sum.item<double>());
}

AdamW::AdamW(FlatParameters& parameters, const AdamWOptions& options)
    : parameters_(parameters),
      options_(options),
      first_moment_(at::zeros_like(parameters.masters())),
      second_moment_(at::zeros_like(parameters.masters())) {}

void AdamW::sleep() {
  first_moment_ = first_moment_.cpu();
  second_moment_ = second_moment_.cpu();
}

void AdamW::wake() {
  first_moment_ = first_moment_.to(parameters_.values().device());
  second_moment_ = second_moment_.to(parameters_.values().device());
}

void AdamW::step(double lr, double gradient_scale) {
  const c10::NoGradGuard no_grad;
  ++steps_;
  const double correction1 = 1 - std::pow(options_.beta1, static_cast<double>(steps_));
  const double correction2 = 1 - std::pow(options_.beta2, static_cast<double>(steps_));
  at::Tensor& values = parameters_.masters();
  if (values.is_cuda() && values.scalar_type() == at::kFloat) {
    step_on_gpu({gradient_scale, options_.beta1, options_.beta2, options_.eps, 1 - lr * options_.weight_decay,
                 lr / correction1, 1 / std::sqrt(correction2)});
    return;
  }
  if (options_.weight_decay != 0) {
    for (const FlatParameters::Segment& segment : parameters_.segments()) {
      if (segment.weight_decay) values.narrow(0, segment.begin, segment.size).mul_(1 - lr * options_.weight_decay);
    }
  }
  for_each_piece(values, [&](int64_t begin, int64_t size) {
    const at::Tensor gradient = parameters_.gradients().narrow(0, begin, size);
    const at::Tensor first = first_moment_.narrow(0, begin, size), second = second_moment_.narrow(0, begin, size);
    if (gradient_scale != 1) gradient.mul_(gradient_scale);
    first.mul_(options_.beta1).add_(gradient, 1 - options_.beta1);
    second.mul_(options_.beta2).addcmul_(gradient, gradient, 1 - options_.beta2);
    const at::Tensor denominator = (second.sqrt() / std::sqrt(correction2)).add_(options_.eps);
    values.narrow(0, begin, size).addcdiv_(first, denominator, -lr / correction1);
  });
  parameters_.publish_masters();
}

// One kernel a run of parameters that decay, or do not, alike.
void AdamW::step_on_gpu(const fused::AdamWCall& call) {
  const auto& segments = parameters_.segments();
  const bool masters = !parameters_.masters().is_same(parameters_.values());
  for (size_t i = 0; i < segments.size();) {
    size_t end = i + 1;
    while (end < segments.size() && segments[end].weight_decay == segments[i].weight_decay) ++end;
    const int64_t begin = segments[i].begin, size = segments[end - 1].begin + segments[end - 1].size - begin;
    const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, begin, size); };
    fused::AdamWCall own = call;
    if (!segments[i].weight_decay) own.weight_decay_factor = 1;
    fused::adamw(part(parameters_.gradients()), part(parameters_.masters()), part(first_moment_), part(second_moment_),
                 masters ? part(parameters_.values()) : at::Tensor(), own);
    i = end;
  }
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0 || norm <= max_norm) return 1;
  return max_norm / (norm + 1e-6);
}

}  // namespace ringfold
