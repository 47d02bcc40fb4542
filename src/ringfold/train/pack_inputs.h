// One pack on one rank, ready for the model: token ids of its rows, and the rows that must be scored.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ringfold/plan/plan.h"
#include "ringfold/shard/pack_layout.h"
#include "ringfold/train/batch.h"
#include "ringfold/train/objective.h"

namespace ringfold {

enum class ScoredRows {
  kLossTokens,      // rows whose next token is a loss token: training
  kResponseTokens,  // rows whose next token is in the response: log-prob passes
};

struct PackInputs {
  at::Tensor ids_t;     // (local rows), pad rows 0
  at::Tensor rows_n;    // local rows that are scored, ascending
  at::Tensor target_n;  // the next token of each
  TokenTerms terms;     // training only
  // Where each scored row belongs: sample (position in the batch) and response token.
  struct Origin {
    size_t sample = 0;
    int64_t response_token = 0;
  };
  std::vector<Origin> origins;
};

// The tensors lie on the device; nothing waits for their copies.
PackInputs pack_inputs(const StepBatch& batch, const PlannedGroup& group, const PackLayout& layout, ScoredRows scored,
                       at::Device device);
// Those of the host copied to the device likewise, but for their origins.
PackInputs on_device(const PackInputs& host, at::Device device);

}  // namespace ringfold
