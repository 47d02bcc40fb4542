// The checkpoints that a run writes on its way, for the loops of `train` and `rl`. Every rank calls every function;
// rank 0 writes. A checkpoint that could not be written ends every rank.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringfold/train/checkpoint_saver.h"
#include "ringfold/train/session.h"

namespace ringfold {

class RunCheckpoints {
 public:
  explicit RunCheckpoints(Session& session) : session_(session) {}

  // Before the first save(), when the folder is the run's (rewind_output). `facts`: what a run that resumes is compared
  // with.
  void open(std::vector<std::pair<std::string, std::string>> facts);
  // Of a run as it is after `state.step`; world size and facts are filled in.
  void save(CheckpointState state, const DenseModel& model, FlatParameters& flat, AdamW& optimizer, const RlFields& rl);
  // Throws when a write that has ended has failed: its reason on rank 0.
  void require_saved();
  // Waits for a write in the background, then as require_saved().
  void finish();

 private:
  Session& session_;
  std::vector<std::pair<std::string, std::string>> facts_;
  std::optional<CheckpointSaver> saver_;  // rank 0, unless --no-save
};

}  // namespace ringfold
