#include "ringfold/models/common/rope_table.h"

#include <ATen/ATen.h>

#include <numbers>

#include "ringfold/device/device.h"

namespace ringfold {
namespace {

// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between interpolated.
at::Tensor llama3_frequencies(const at::Tensor& plain, const RopeScaling& scaling) {
  const auto context = static_cast<double>(scaling.original_max_position_embeddings);
  const at::Tensor wavelengths = plain.reciprocal().mul(2 * std::numbers::pi);
  const at::Tensor stretched = plain / scaling.factor;
  const at::Tensor share = (wavelengths.reciprocal().mul(context) - scaling.low_freq_factor) /
                           (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor between = (1 - share) * stretched + share * plain;
  const at::Tensor long_wave = wavelengths > context / scaling.low_freq_factor;
  const at::Tensor short_wave = wavelengths < context / scaling.high_freq_factor;
  return at::where(long_wave, stretched, at::where(short_wave, plain, between));
}

}  // namespace

at::Tensor rope_frequencies(const ModelConfig& config, at::ScalarType dtype) {
  const at::Tensor exponents = at::arange(0, config.head_dim, 2, at::TensorOptions(dtype)) / config.head_dim;
  const at::Tensor plain = at::pow(config.rope_theta, exponents).reciprocal();
  switch (config.rope_scaling.kind) {
    case RopeScaling::Kind::kNone:
      return plain;
    case RopeScaling::Kind::kLinear:
      return plain / config.rope_scaling.factor;
    case RopeScaling::Kind::kLlama3:
      return llama3_frequencies(plain, config.rope_scaling);
  }
  return plain;
}

RopeTable rope_table(const ModelConfig& config, const std::vector<int64_t>& positions, at::ScalarType dtype,
                     at::Device device) {
  const at::Tensor positions_t = to_device(positions, device).to(dtype);
  const at::Tensor angles = at::outer(positions_t, to_device(rope_frequencies(config, dtype), device));
  const at::Tensor both = at::cat({angles, angles}, 1);
  return {both.cos(), both.sin()};
}

}  // namespace ringfold
