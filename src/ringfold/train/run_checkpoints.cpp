#include "ringfold/train/run_checkpoints.h"

#include "ringfold/mesh/failure.h"
#include "ringfold/train/checkpoint_files.h"
#include "ringfold/train/resume.h"

namespace ringfold {

void RunCheckpoints::open(std::vector<std::pair<std::string, std::string>> facts) {
  facts_ = std::move(facts);
  const RunSettings& settings = session_.settings;
  if (!session_.is_main() || !settings.save) return;
  saver_.emplace(CheckpointSaver::Options{checkpoints_folder(settings.output_dir), settings.save_total_limit,
                                          settings.async_save, nullptr});
}

void RunCheckpoints::save(CheckpointState state, const DenseModel& model, FlatParameters& flat, AdamW& optimizer,
                          const RlFields& rl) {
  const RunSettings& settings = session_.settings;
  state.world_size = session_.env.world_size;
  state.facts = facts_;
  Checkpoint checkpoint =
      capture_checkpoint(session_.collectives(), std::move(state), model, flat, optimizer, rl, settings.async_save);
  if (session_.is_main()) {
    // A checkpoint's steps shall be in the records on the disk.
    for (const std::string& records : record_files(settings.output_dir)) flush_file(records);
    saver_->save(std::move(checkpoint));
  }
  require_saved();
}

void RunCheckpoints::require_saved() {
  const bool failed = saver_ && saver_->failure();
  if (session_.collectives().all_gather_double(failed ? 1 : 0, "checkpoint").front() == 0) return;
  if (failed) throw *saver_->failure();
  throw ReportedElsewhere(ExitCode::kFailure);
}

void RunCheckpoints::finish() {
  if (saver_) saver_->finish();
  require_saved();
}

}  // namespace ringfold
