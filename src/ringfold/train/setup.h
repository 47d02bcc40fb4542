// What training, log-prob and parity runs load before the first step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringfold/data/sample.h"
#include "ringfold/models/qwen3/model.h"
#include "ringfold/train/session.h"
#include "ringfold/train/settings.h"

namespace ringfold {

struct LoadedFiles {
  ModelConfig config;
  Dataset data;
  std::optional<Dataset> eval_data;
};

// Checks the settings that concern files and loads everything that can be refused, weights excepted.
LoadedFiles load_files(const RunSettings& settings, const Topology& topology);

// The model of the settings: weights from --model, or drawn from --init-seed.
std::unique_ptr<DenseModel> make_model(const RunSettings& settings, const ModelConfig& config);

// Settings and data that all ranks must share, for require_same_run.
std::vector<std::pair<std::string, std::string>> run_facts(const Session& session, const LoadedFiles& files,
                                                           const DenseModel& model);

// Longest sample accepted: --rollout-max-context-len, else what the largest pack holds; 0: no limit.
int64_t longest_accepted(const Topology& topology);

// UsageError when the folder of an output file does not exist or cannot be written to: known before the work is done.
void require_writable(const std::string& file, const std::string& flag);

// The start-up table (rank 0).
void print_startup(const Session& session, const LoadedFiles& files);

}  // namespace ringfold
