// The proof that a layout changes nothing: the same step on one rank, one sample at a time, no packing and no CP,
// beside the given layout.
#pragma once

#include <string>
#include <vector>

#include "ringfold/train/settings.h"

namespace ringfold {

struct ParityDifference {
  std::string name;       // "loss", "log_probs", or a tensor
  double difference = 0;  // loss: relative; log_probs: largest absolute; gradient: norm of the difference, or angle
  double allowed = 0;
  bool ok() const { return difference <= allowed; }
};

struct ParityReport {
  std::vector<ParityDifference> differences;
  double reference_loss = 0, loss = 0;
  std::string layout;  // CP sizes in use, micro-steps
  bool ok() const;
};

// Tolerances of spec 13. float64: 1e-10 relative everywhere. float32: loss 1e-6, log-probs 1e-5, each gradient within
// 1e-5 of its norm + 1e-7 of the global norm; on a GPU ten times that. bfloat16: loss 1e-3; gradients by angle: the
// cosine of all at least 0.9999, of each tensor 0.999.
struct ParityTolerance {
  double loss, log_probs, gradient, gradient_global;
  bool by_angle = false;  // gradient: 1 - cosine of a tensor; gradient_global: of all together
  static ParityTolerance of(const std::string& dtype, const std::string& device);
};

// The reference of a GPU run is the CPU, in fp32 where the run is in half precision, with the same weights.
// Whole `ringfold parity`: compares the first global batch, prints a table (or JSON) on rank 0; 0, or 1 beyond
// tolerance.
int run_parity_check(const RunSettings& settings, bool json);

}  // namespace ringfold
