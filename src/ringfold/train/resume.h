// Going on from a checkpoint: which one, whether it belongs to this run, and its way to every rank.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringfold/train/checkpoint.h"
#include "ringfold/train/session.h"

namespace ringfold {

// RUN/rollouts.jsonl, with a record a rollout.
std::string rollout_records(const std::string& output_dir);
// The files of a run with a record a step, or a rollout, there or not.
std::vector<std::string> record_files(const std::string& output_dir);

struct ResumePoint {
  std::string path;
  Checkpoint checkpoint;
};

// RUN/checkpoints.
std::string checkpoints_folder(const std::string& output_dir);

// What --resume asks for, verified and read into the host's memory; none: the run starts at step 1. Nothing is written.
// `auto` takes the newest whole checkpoint of --output-dir and warns about newer ones that are damaged. UsageError or
// DataError: `never` where there is a run already, a damaged checkpoint (by file), or none where one was asked for.
// Rank 0 looks, so that only its host needs the files.
std::optional<ResumePoint> find_resume_point(const RunSettings& settings);

struct Resumed {
  int64_t step = 0;                      // steps made, of `rl` rollouts; 0: a new run
  std::map<int, int64_t> packs_by_size;  // rank 0
  RlFields rl;                           // old and reference log-probs, fixed before step 1
};

// Every rank calls it; `point` is rank 0's. Refuses (every rank, one message) a checkpoint of other data, another model
// or another order of samples, and warns about other settings that change what is learned; the layout is free. Then
// every rank has rank 0's weights and optimizer state, bit for bit.
Resumed resume_run(Session& session, const std::optional<ResumePoint>& point,
                   const std::vector<std::pair<std::string, std::string>>& facts, FlatParameters& flat,
                   AdamW& optimizer);

// Rank 0, before its first record: cuts the records of steps after `step`, and sets later checkpoints aside. The
// second one is for `rl`, whose checkpoints have the numbers of rollouts.
void rewind_output(const std::string& output_dir, int64_t step);
void rewind_output(const std::string& output_dir, int64_t rollout, int64_t step);

}  // namespace ringfold
