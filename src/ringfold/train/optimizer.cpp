#include "ringfold/train/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "ringfold/train/pieces.h"

namespace ringfold {
namespace {

// body(begin, size, decays) for the runs of parameters within a part that decay, or do not, alike; `begin` in the part.
template <typename Body>
void for_each_decay_run(const FlatParameters& parameters, const FlatParameters::OwnedPart& part, Body body) {
  const auto& segments = parameters.segments();
  const int64_t end = part.begin + part.size;
  int64_t from = part.begin;
  for (size_t i = 0; i < segments.size() && from < end; ++i) {
    const int64_t segment_end = std::min(end, segments[i].begin + segments[i].size);
    const bool goes_on = i + 1 < segments.size() && segments[i + 1].weight_decay == segments[i].weight_decay;
    if (segment_end <= from || (goes_on && segment_end < end)) continue;
    body(from - part.begin, segment_end - from, segments[i].weight_decay);
    from = segment_end;
  }
}

at::Tensor state_of(const at::Tensor& owned, const FlatParameters::OwnedPart& part) {
  return owned.narrow(0, part.owned_begin, part.size);
}

}  // namespace

AdamW::AdamW(FlatParameters& parameters, const AdamWOptions& options)
    : parameters_(parameters),
      options_(options),
      first_moment_(at::zeros({parameters.owned_elements()}, parameters.masters().options())),
      second_moment_(at::zeros_like(first_moment_)) {}

void AdamW::sleep() {
  first_place_.put(first_moment_);
  second_place_.put(second_moment_);
}

void AdamW::wake() {
  HostPlace::take(first_moment_, parameters_.values().device());
  HostPlace::take(second_moment_, parameters_.values().device());
}

void AdamW::step(double lr, double gradient_scale) {
  const c10::NoGradGuard no_grad;
  ++steps_;
  const double correction1 = 1 - std::pow(options_.beta1, static_cast<double>(steps_));
  const double root_correction2 = std::sqrt(1 - std::pow(options_.beta2, static_cast<double>(steps_)));
  const fused::AdamWCall call{
      gradient_scale,   options_.beta1,      options_.beta2, options_.eps, 1 - lr * options_.weight_decay,
      lr / correction1, 1 / root_correction2};
  const at::Tensor& masters = parameters_.masters();
  const bool on_gpu = masters.is_cuda() && masters.scalar_type() == at::kFloat;
  for (const FlatParameters::OwnedPart& part : parameters_.owned_parts()) {
    on_gpu ? step_on_gpu(part, call) : step_on_cpu(part, call, root_correction2);
  }
  if (!on_gpu) parameters_.publish_masters();
}

void AdamW::step_on_cpu(const FlatParameters::OwnedPart& part, const fused::AdamWCall& call, double root_correction2) {
  const at::Tensor masters = parameters_.master_part(part);
  const at::Tensor gradients = parameters_.gradients().narrow(0, part.begin, part.size);
  const at::Tensor first_moment = state_of(first_moment_, part), second_moment = state_of(second_moment_, part);
  if (call.weight_decay_factor != 1) {
    for_each_decay_run(parameters_, part, [&](int64_t begin, int64_t size, bool decays) {
      if (decays) masters.narrow(0, begin, size).mul_(call.weight_decay_factor);
    });
  }
  for_each_piece(masters, [&](int64_t begin, int64_t size) {
    const at::Tensor gradient = gradients.narrow(0, begin, size);
    const at::Tensor first = first_moment.narrow(0, begin, size), second = second_moment.narrow(0, begin, size);
    if (call.gradient_scale != 1) gradient.mul_(call.gradient_scale);
    first.mul_(call.beta1).add_(gradient, 1 - call.beta1);
    second.mul_(call.beta2).addcmul_(gradient, gradient, 1 - call.beta2);
    const at::Tensor denominator = (second.sqrt() / root_correction2).add_(call.eps);
    masters.narrow(0, begin, size).addcdiv_(first, denominator, -call.step_size);
  });
}

// One kernel a run of parameters that decay, or do not, alike.
void AdamW::step_on_gpu(const FlatParameters::OwnedPart& part, const fused::AdamWCall& call) {
  for_each_decay_run(parameters_, part, [&](int64_t begin, int64_t size, bool decays) {
    const FlatParameters::OwnedPart run{part.begin + begin, size, part.owned_begin + begin};
    fused::AdamWCall own = call;
    if (!decays) own.weight_decay_factor = 1;
    fused::adamw(parameters_.gradients().narrow(0, run.begin, size), parameters_.master_part(run),
                 state_of(first_moment_, run), state_of(second_moment_, run),
                 parameters_.has_masters() ? parameters_.values().narrow(0, run.begin, size) : at::Tensor(), own);
  });
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0 || norm <= max_norm) return 1;
  return max_norm / (norm + 1e-6);
}

}  // namespace ringfold
