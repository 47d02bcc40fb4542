// What training, log-prob and parity runs load before the first step.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringfold/data/sample.h"
#include "ringfold/models/qwen3/model.h"
#include "ringfold/train/memory_estimate.h"
#include "ringfold/train/reference_weights.h"
#include "ringfold/train/session.h"
#include "ringfold/train/settings.h"

namespace ringfold {

struct LoadedFiles {
  ModelConfig config;
  Dataset data;
  std::optional<Dataset> eval_data;
  std::optional<ReferenceWeights> reference;  // of --ref-load
};

// The config.json that --model or --model-config names; UsageError for neither or both.
ModelConfig config_of(const RunSettings& settings);

// Checks the settings that concern files and loads everything that can be refused, weights excepted. `scored`: samples
// go through forward-only passes also where no objective or evaluation asks for them.
LoadedFiles load_files(const RunSettings& settings, const Topology& topology, bool scored = false);

// A fact about weights: a digest of their bits.
std::string weights_fact(const std::vector<at::Tensor>& weights);

// The model of the settings: weights from --model, or drawn from --init-seed.
std::unique_ptr<DenseModel> make_model(const RunSettings& settings, const ModelConfig& config, at::Device device);

// "name=value" facts of data, model and settings, without paths, hosts or rank-local values: equal on every rank, and
// kept in checkpoints.
std::vector<std::pair<std::string, std::string>> run_facts(const Session& session, const LoadedFiles& files);

// A run that may begin: all ranks agree, have the same settings, data and weights, and the start-up table was printed.
struct StartedRun {
  std::unique_ptr<Session> session;
  LoadedFiles files;
  std::unique_ptr<DenseModel> model;  // weights from --model, or drawn from --init-seed
};

// `load` checks the command's own settings and returns its files (load_files); what it throws ends every rank.
StartedRun start_run(const RunSettings& settings, const std::function<LoadedFiles(const Topology&)>& load);

MemoryEstimate memory_of_run(const Session& session, const LoadedFiles& files);

// The longest sample, and the flags that say so.
struct SampleLimit {
  int64_t tokens = 0;  // 0: no limit
  std::string flags;   // "--max-tokens-per-gpu 1024 x CP size 4"
};
// Of data files and of what `rl` makes: --rollout-max-context-len, else what the largest pack holds, of training and,
// where samples are scored, of forward-only passes.
SampleLimit longest_accepted(const Topology& topology, bool scored);

// UsageError when the folder of an output file does not exist or cannot be written to: known before the work is done.
void require_writable(const std::string& file, const std::string& flag);
// The folder of --output-dir, which may be there; UsageError with the system's reason.
void make_output_folder(const std::string& folder);

}  // namespace ringfold
