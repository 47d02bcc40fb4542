// Parameters, gradients and AdamW state in flat buffers, in parameter order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ringfold/kernels/fused.h"
#include "ringfold/models/qwen3/model.h"

namespace ringfold {

// Makes every parameter and its gradient a view of one flat buffer each, so that one reduction, one norm and one update
// cover the model. The backward accumulates into the views in place. Weights of half precision have gradients and
// master weights of fp32; for other types the weights are the masters.
class FlatParameters {
 public:
  explicit FlatParameters(std::vector<Parameter>& parameters);

  at::Tensor& gradients() { return gradients_; }
  at::Tensor& values() { return values_; }
  at::Tensor& masters() { return masters_; }
  // Copies the masters into the weights that the model reads.
  void publish_masters();
  void zero_gradients();
  // Frees the gradients and takes masters beside the weights to the host; the model runs forward as before. wake()
  // gives all back: gradients of zeros, masters bit for bit. Both may be called in any order, any number of times.
  void sleep();
  void wake();
  // Views of a flat tensor in parameter order, by parameter.
  std::vector<NamedTensor> parts_of(const at::Tensor& flat) const;
  std::vector<NamedTensor> named_gradients() const { return parts_of(gradients_); }
  // Global L2 norm of the gradient, accumulated in fp64.
  double gradient_norm() const;

  struct Segment {
    std::string name;
    int64_t begin = 0;
    int64_t size = 0;
    std::vector<int64_t> shape;
    bool weight_decay = true;
  };
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  void attach_gradients();

  std::vector<Segment> segments_;
  std::vector<at::Tensor> leaves_;  // the model's parameters
  bool asleep_ = false;
  at::Tensor values_, masters_, gradients_;
};

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
  // Applies gradients() * gradient_scale. The step count for the bias correction counts calls.
  void step(double lr, double gradient_scale);
  // Takes the moments to the host, and back bit for bit; as FlatParameters.
  void sleep();
  void wake();

  // The state that a checkpoint holds; flat, in parameter order.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  const at::Tensor& first_moment() const { return first_moment_; }
  const at::Tensor& second_moment() const { return second_moment_; }

 private:
  void step_on_gpu(const fused::AdamWCall& call);

  FlatParameters& parameters_;
  AdamWOptions options_;
  int64_t steps_ = 0;
  at::Tensor first_moment_, second_moment_;
};

// The factor that brings a gradient of this norm to at most max_norm (1 when max_norm is 0).
double clip_factor(double norm, double max_norm);

}  // namespace ringfold
