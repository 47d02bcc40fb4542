// AdamW on the parts of the flat parameters that this rank owns (flat_parameters.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ringfold/device/host_place.h"
#include "ringfold/kernels/fused.h"
#include "ringfold/train/flat_parameters.h"

namespace ringfold {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;
};

// Decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101), bias-corrected; state in at least fp32. Decay is
// not applied to norms and biases.
class AdamW {
 public:
  AdamW(FlatParameters& parameters, const AdamWOptions& options);
  // Updates the owned parts by gradients() * gradient_scale; FlatParameters::gather_values then makes the weights
  // whole. The step count for the bias correction counts calls.
  void step(double lr, double gradient_scale);
  // Takes the moments to the host, and back bit for bit; as FlatParameters.
  void sleep();
  void wake();

  // The state that a checkpoint holds: owned state, in the order of owned_parts().
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  at::Tensor& first_moment() { return first_moment_; }
  at::Tensor& second_moment() { return second_moment_; }

 private:
  void step_on_gpu(const FlatParameters::OwnedPart& part, const fused::AdamWCall& call);
  void step_on_cpu(const FlatParameters::OwnedPart& part, const fused::AdamWCall& call, double root_correction2);

  FlatParameters& parameters_;
  AdamWOptions options_;
  int64_t steps_ = 0;
  at::Tensor first_moment_, second_moment_;
  HostPlace first_place_, second_place_;  // while it sleeps
};

// The factor that brings a gradient of this norm to at most max_norm (1 when max_norm is 0).
double clip_factor(double norm, double max_norm);

}  // namespace ringfold
