// Angles of the rotary embedding for given positions, with the frequency scalings that configs name.
// Legend: t tokens, d head dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ringfold/models/common/config.h"

namespace ringfold {

struct RopeTable {
  at::Tensor cos_td, sin_td;
};

// Frequencies theta^(-2i/d), scaled as config.rope_scaling says; (d / 2). Computed in `dtype`, as the published fp32
// models were trained; fp64 stays fp64 throughout.
at::Tensor rope_frequencies(const ModelConfig& config, at::ScalarType dtype);
// cos and sin of position * frequency, repeated for both halves of the head; computed on the device.
RopeTable rope_table(const ModelConfig& config, const std::vector<int64_t>& positions, at::ScalarType dtype,
                     at::Device device = at::kCPU);

}  // namespace ringfold
