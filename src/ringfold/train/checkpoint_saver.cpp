#include "ringfold/train/checkpoint_saver.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "ringfold/base/log.h"

namespace ringfold {

CheckpointSaver::CheckpointSaver(Options options) : options_(std::move(options)) {
  remove_unfinished_checkpoints(options_.folder);
}

CheckpointSaver::~CheckpointSaver() {
  finish();
}

void CheckpointSaver::save(Checkpoint checkpoint) {
  finish();
  if (failure_) return;
  running_step_ = checkpoint.state.step;
  running_ = std::async(options_.async ? std::launch::async : std::launch::deferred,
                        [this, checkpoint = std::move(checkpoint)] { write(checkpoint); });
  if (!options_.async) finish();
}

void CheckpointSaver::finish() {
  if (!running_.valid()) return;
  try {
    running_.get();
  } catch (const std::exception& error) {
    failure_ = describe(running_step_, error.what());
  }
}

const std::optional<RunError>& CheckpointSaver::failure() {
  if (running_.valid() && running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) finish();
  return failure_;
}

void CheckpointSaver::write(const Checkpoint& checkpoint) const {
  const std::string path = write_checkpoint(options_.folder, checkpoint, options_.stage);
  log::info(fmt::format("ringfold: checkpoint {}", path));
  try {
    keep_newest_checkpoints(options_.folder, options_.keep);
  } catch (const std::exception& error) {
    log::warning(fmt::format("an old checkpoint was not removed: {}", error.what()));
  }
}

RunError CheckpointSaver::describe(int64_t step, const std::string& reason) const {
  std::string good = "there is no earlier one";
  for (const CheckpointFolder& found : list_checkpoints(options_.folder)) {
    if (!std::filesystem::exists(found.path + "/" + kCompleteMark)) continue;
    good = fmt::format("the newest complete one is {}", found.path);
    break;
  }
  // The reason brings a hint of its own; this one knows what to do next.
  return RunError(fmt::format(
      "[checkpoint] the checkpoint of step {} was not written: {}; {}. Hint: free the disk, then --resume auto", step,
      reason.substr(0, reason.find(". Hint:")), good));
}

}  // namespace ringfold
