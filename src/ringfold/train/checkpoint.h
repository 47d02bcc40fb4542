// What a checkpoint holds, and how it gets from and to a run:
//   hf/                    weights in the run's dtype and config.json, in Hugging Face layout
//   optimizer.safetensors  NAME.exp_avg, NAME.exp_avg_sq; for half precision NAME.master (fp32)
//   samples.safetensors    values of the samples that were fixed before step 1 (old, reference log-probs); only where
//   there are any state.json             everything else COMPLETE               checkpoint_files.h
// The order of the samples, the learning rate and the start of an epoch are functions of the step and of settings that
// a resumed run must share (resume.h); nothing in training draws from a generator that has a state.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ringfold/models/qwen3/model.h"
#include "ringfold/train/batch.h"
#include "ringfold/train/checkpoint_files.h"
#include "ringfold/train/optimizer.h"

namespace ringfold {

// state.json. Numbers are exact: integers, and texts of settings.
struct CheckpointState {
  int64_t step = 0;             // steps made; of `rl` rollouts
  int64_t optimizer_steps = 0;  // updates made: fewer, where a step had no loss tokens
  int world_size = 0;           // of the writer; a resumed run may have another one
  std::map<int, int64_t> packs_by_size;
  std::vector<std::pair<std::string, std::string>> facts;  // settings and digests (setup.h), in order
};

std::string to_json(const CheckpointState& state);
// DataError that names `file`.
CheckpointState parse_checkpoint_state(const std::string& text, const std::string& file);

struct Checkpoint {
  CheckpointState state;
  std::string config_json;             // of hf/config.json
  std::vector<NamedTensor> weights;    // Hugging Face names
  std::vector<NamedTensor> optimizer;  // see above
  std::vector<NamedTensor> samples;
};

// The run as it is, whole on rank 0; every rank of the lane calls it, for its part of the optimizer's state. That state
// is copied to rank 0's host memory, but on a lane of one, where it is, like the weights, views of the run's own, or
// with `copied` copies on the host that later steps do not change.
Checkpoint capture_checkpoint(Collectives& lane, CheckpointState state, const DenseModel& model, FlatParameters& flat,
                              AdamW& optimizer, const RlFields& rl, bool copied);

// FOLDER/step_N; returns its path. RunErrors say what went wrong; nothing half is left (checkpoint_files.h).
std::string write_checkpoint(const std::string& folder, const Checkpoint& checkpoint,
                             const CheckpointStage& stage = nullptr);

// Verifies every file, then reads. DataError names the file that is missing or damaged.
Checkpoint read_checkpoint(const std::string& path);

// DataError lists tensors that are missing, extra or of another shape than the run's; `path` is what it names.
void require_same_tensors(const Checkpoint& checkpoint, const std::string& path, FlatParameters& flat);
// Puts the values of such a checkpoint, rank 0's, into the tensors of every rank, bit for bit. Every rank calls it.
void restore_tensors(Collectives& lane, const Checkpoint& checkpoint, FlatParameters& flat, AdamW& optimizer);
// Old and reference log-probs, by sample; empty where the checkpoint has none (SFT).
RlFields rl_fields_of(const std::vector<NamedTensor>& samples);

}  // namespace ringfold
