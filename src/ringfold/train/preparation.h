// What the host can do for a step before the step runs: its plan, and what this rank's packs read. The training loop
// prepares the next step on a thread of its own while this one runs; the result is the same bits whenever it is made.
#pragma once

#include <vector>

#include "ringfold/train/batch.h"
#include "ringfold/train/pack_inputs.h"
#include "ringfold/train/planning.h"
#include "ringfold/train/session.h"

namespace ringfold {

struct PreparedStep {
  StepBatch batch;
  TimedPlan planned;               // this rank's; the ranks have yet to compare theirs
  std::vector<PackInputs> inputs;  // of this rank's packs, in the order it runs them; on the host
  double waited_ms = 0;            // by the step, for this
  double epochs_done = 0;          // with this step, where a loop chose the batch
};

// What this rank's packs of the plan read.
std::vector<PackInputs> prepare_inputs(const Session& session, const StepBatch& batch, const Plan& plan);

// Plan and inputs. On any thread, while the session's settings, topology and cost model stay as they are. Throws as
// plan_step does.
PreparedStep prepare_step(const Session& session, StepBatch batch, int64_t step);

}  // namespace ringfold
