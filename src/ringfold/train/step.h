// One optimizer step, from a global batch to updated weights. step.cpp reads as the method.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ringfold/device/device.h"
#include "ringfold/models/qwen3/model.h"
#include "ringfold/report/metrics.h"
#include "ringfold/train/batch.h"
#include "ringfold/train/objective.h"
#include "ringfold/train/optimizer.h"
#include "ringfold/train/preparation.h"
#include "ringfold/train/session.h"

namespace ringfold {

struct TrainState {
  DenseModel& model;
  FlatParameters& flat;
  AdamW* optimizer = nullptr;  // null: gradients only (parity, benchmarks)
  // Called on every rank when the gradients are reduced, before clipping (--dump-gradients).
  std::function<void(int64_t step)> on_gradients = nullptr;
  // Whether gradients are reduced while the last backward goes on, where no CP exchange follows. Not set: on GPUs,
  // where the reduction does not stop the rank.
  std::optional<bool> reduce_early = std::nullopt;
};

struct StepReport {
  Plan plan;
  LossSums sums;  // of all ranks
  double grad_norm = 0;
  bool updated = false;           // false for a step without loss tokens
  std::vector<double> busy_ms;    // per lane rank: time inside its own packs
  std::vector<double> pack_us;    // their start and end by rank, as make_timeline takes them
  double exposed_ms = 0;          // largest over ranks
  int64_t peak_memory_bytes = 0;  // max RSS, on a GPU allocated memory; largest over ranks
  double plan_ms = 0;
  double step_ms = 0;
};

// Forward and backward of this rank's packs: accumulates into flat.gradients(), which must be zero. Gradients and sums
// are local until reduced. `packs` gets a begin and an end for each of them.
// `reduce_early`: the reduction begins inside the last backward, and reduce_gradients must follow.
LossSums run_packs(Session& session, TrainState& state, const PreparedStep& prepared, int64_t step, StreamTimer& packs,
                   bool reduce_early = false);

// The whole step: the ranks compare plans, packs, one reduction over the lane, clip, update of the owned parts, weights
// to all. Gradients are left reduced, not gathered (flat_parameters.h). Its plan goes to the report.
StepReport train_step(Session& session, TrainState& state, PreparedStep& prepared, int64_t step, double lr);
// The same, prepared on the spot.
StepReport train_step(Session& session, TrainState& state, const StepBatch& batch, int64_t step, double lr);

// CP size -> share of the step's real tokens, for the sizes in use.
std::map<int, double> token_share_by_size(const Plan& plan);

// The step's record, without epoch, lr and evaluation, which the loop knows.
StepMetrics step_metrics(const Session& session, const ModelConfig& config, const StepBatch& batch,
                         const StepReport& report);

}  // namespace ringfold
