// Saving on the way: one write at a time, on a thread of its own with --async-save, and the newest K kept. On rank 0.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>

#include "ringfold/base/error.h"
#include "ringfold/train/checkpoint.h"

namespace ringfold {

class CheckpointSaver {
 public:
  struct Options {
    std::string folder;     // RUN/checkpoints
    int64_t keep = 0;       // newest ones kept; 0: all
    bool async = false;     // write in the background: give save() copies (capture_checkpoint)
    CheckpointStage stage;  // tests
  };

  // Removes what killed writers left.
  explicit CheckpointSaver(Options options);
  ~CheckpointSaver();  // waits for a write in the background
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Waits for the write before it. What fails is kept for failure().
  void save(Checkpoint checkpoint);
  // Waits for a write in the background.
  void finish();
  // The first failure of a write that has ended: the step, the reason, and the checkpoint that is still good.
  const std::optional<RunError>& failure();

 private:
  void write(const Checkpoint& checkpoint) const;
  RunError describe(int64_t step, const std::string& reason) const;

  Options options_;
  std::future<void> running_;
  int64_t running_step_ = 0;
  std::optional<RunError> failure_;
};

}  // namespace ringfold
