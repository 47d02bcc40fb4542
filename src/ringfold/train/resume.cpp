#include "ringfold/train/resume.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "ringfold/base/log.h"
#include "ringfold/mesh/failure.h"
#include "ringfold/report/cut_records.h"

namespace ringfold {
namespace {

namespace fs = std::filesystem;

// Facts without which steps and samples of the two runs are not the same ones.
const std::set<std::string> kFixed = {
    "data digest",         "model config", "--dtype",   "--objective",          "--seed",
    "--global-batch-size", "--shuffle",    "responses", "--rollout-batch-size", "reference weights"};
// Facts that change how a step is computed or what is recorded, not what is learned.
const std::set<std::string> kFree = {"--recompute",
                                     "--attention-kernel",
                                     "--device",
                                     "--log-prob-chunk-tokens",
                                     "--stop-after-steps",
                                     "--eval-interval",
                                     "eval data digest",
                                     "--save-interval",
                                     "--no-save",
                                     "--async-save",
                                     "--max-tokens-per-gpu",
                                     "--log-probs-max-tokens-per-gpu",
                                     "--rollout-max-context-len",
                                     "maximum CP size",
                                     "--cp-policy",
                                     "--static-balance",
                                     "--execution",
                                     "--cp-comm-type",
                                     "--cost-model"};

bool holds_run(const std::string& output_dir) {
  return fs::exists(output_dir + "/metrics.jsonl") || !list_checkpoints(checkpoints_folder(output_dir)).empty();
}

[[noreturn]] void refuse_second_run(const std::string& output_dir) {
  throw UsageError(
      fmt::format("[settings] --output-dir {}: holds a run already. Hint: --resume auto goes on with it; or choose "
                  "another folder, or remove this one",
                  output_dir));
}

// The newest whole one; none when there is none at all.
std::optional<ResumePoint> newest_whole(const std::string& folder) {
  const std::vector<CheckpointFolder> found = list_checkpoints(folder);
  std::string damage;
  for (const CheckpointFolder& checkpoint : found) {
    try {
      return ResumePoint{checkpoint.path, read_checkpoint(checkpoint.path)};
    } catch (const DataError& error) {
      const std::string what = std::string(error.what()).substr(0, std::string(error.what()).find(". Hint:"));
      log::warning(fmt::format("{}; step {} is skipped, the checkpoint before it is tried", what, checkpoint.step));
      if (damage.empty()) damage = what;
    }
  }
  if (found.empty()) return std::nullopt;
  throw DataError(
      fmt::format("{}; of {} checkpoints in {} none is whole. Hint: --resume PATH for one kept elsewhere, or "
                  "start again in another --output-dir",
                  damage, found.size(), folder));
}

std::optional<ResumePoint> find_latest_of(const std::string& output_dir) {
  if (auto point = newest_whole(checkpoints_folder(output_dir))) return point;
  if (!fs::exists(output_dir + "/metrics.jsonl")) return std::nullopt;
  // A finished run without checkpoints is somebody's result.
  if (fs::exists(output_dir + "/hf")) {
    throw UsageError(fmt::format(
        "[settings] --resume auto: --output-dir {} holds a finished run without checkpoints. Hint: choose another "
        "folder, or remove this one",
        output_dir));
  }
  log::warning(fmt::format(
      "--resume auto: the run in {} stopped before its first checkpoint; it starts again at step 1", output_dir));
  return std::nullopt;
}

ResumePoint find_at(std::string path, const std::string& output_dir) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (fs::is_directory(path + "/checkpoints")) {
    if (auto latest = newest_whole(checkpoints_folder(path))) return *std::move(latest);
  }
  if (!fs::exists(path + "/state.json") && !fs::exists(path + "/" + kCompleteMark)) {
    throw UsageError(fmt::format(
        "[settings] --resume {}: got a folder without a checkpoint, expected RUN/checkpoints/step_N or RUN. Hint: "
        "--resume auto takes the newest one of --output-dir",
        path));
  }
  const fs::path run = fs::weakly_canonical(path).parent_path().parent_path();
  if (holds_run(output_dir) && !fs::equivalent(run, output_dir)) refuse_second_run(output_dir);
  return {path, read_checkpoint(path)};
}

// A config.json says the same whatever its layout and the dtype it was written with.
bool same_fact(const std::string& name, const std::string& a, const std::string& b) {
  if (name != "model config") return a == b;
  std::array<nlohmann::json, 2> configs = {nlohmann::json::parse(a, nullptr, false),
                                           nlohmann::json::parse(b, nullptr, false)};
  for (nlohmann::json& config : configs) {
    if (!config.is_object()) continue;
    config.erase("dtype");
    config.erase("torch_dtype");
  }
  return configs[0] == configs[1];
}

void require_same_training(const ResumePoint& point, const std::vector<std::pair<std::string, std::string>>& facts) {
  const std::map<std::string, std::string> now(facts.begin(), facts.end());
  std::vector<std::string> changed;
  for (const auto& [name, saved] : point.checkpoint.state.facts) {
    const auto own = now.find(name);
    if (own == now.end() || same_fact(name, own->second, saved) || kFree.contains(name)) continue;
    if (kFixed.contains(name)) {
      throw UsageError(
          fmt::format("[checkpoint] {}: {}: got {}, expected {} as in the checkpoint. Hint: resume with the data and "
                      "settings of the "
                      "run; for a new run start from its weights: --model {}/hf",
                      point.path, name, own->second, saved, point.path));
    }
    changed.push_back(fmt::format("{} {} (was {})", name, own->second, saved));
  }
  if (!changed.empty()) {
    log::warning(fmt::format("settings changed since the checkpoint: {}", fmt::join(changed, ", ")));
  }
}

// Rank 0's values on every rank, whatever their number there.
template <typename T>
void broadcast_values(Collectives& collectives, std::vector<T>& values) {
  at::Tensor count = at::full({1}, static_cast<int64_t>(values.size()), at::kLong);
  collectives.broadcast(count, LaneRank(0), "checkpoint");
  values.resize(static_cast<size_t>(count.item<int64_t>()));
  if (values.empty()) return;
  at::Tensor bytes = at::from_blob(values.data(), {static_cast<int64_t>(values.size() * sizeof(T))}, at::kByte);
  collectives.broadcast(bytes, LaneRank(0), "checkpoint");
}

void broadcast_rows(Collectives& collectives, std::vector<std::vector<double>>& rows) {
  std::vector<int64_t> counts;
  std::vector<double> values;
  for (const std::vector<double>& row : rows) {
    counts.push_back(static_cast<int64_t>(row.size()));
    values.insert(values.end(), row.begin(), row.end());
  }
  broadcast_values(collectives, counts);
  broadcast_values(collectives, values);
  rows.clear();
  auto at = values.begin();
  for (const int64_t count : counts) {
    rows.emplace_back(at, at + count);
    at += count;
  }
}

}  // namespace

std::string checkpoints_folder(const std::string& output_dir) {
  return output_dir + "/checkpoints";
}

std::string rollout_records(const std::string& output_dir) {
  return output_dir + "/rollouts.jsonl";
}

std::vector<std::string> record_files(const std::string& output_dir) {
  return {output_dir + "/metrics.jsonl", output_dir + "/eval.jsonl", output_dir + "/timeline.jsonl",
          rollout_records(output_dir)};
}

std::optional<ResumePoint> find_resume_point(const RunSettings& settings) {
  if (settings.resume == "auto") return find_latest_of(settings.output_dir);
  if (settings.resume != "never") return find_at(settings.resume, settings.output_dir);
  if (holds_run(settings.output_dir)) refuse_second_run(settings.output_dir);
  return std::nullopt;
}

Resumed resume_run(Session& session, const std::optional<ResumePoint>& point,
                   const std::vector<std::pair<std::string, std::string>>& facts, FlatParameters& flat,
                   AdamW& optimizer) {
  const c10::NoGradGuard no_grad;
  Collectives& collectives = session.collectives();
  std::exception_ptr refusal;
  Resumed resumed;
  if (point) {
    try {
      require_same_training(*point, facts);
      require_same_tensors(point->checkpoint, point->path, flat);
      resumed.step = point->checkpoint.state.step;
      resumed.packs_by_size = point->checkpoint.state.packs_by_size;
      resumed.rl = rl_fields_of(point->checkpoint.samples);
      log::info(fmt::format("ringfold: resumed after {} {} from {} (written by {} ranks)",
                            session.settings.num_rollout > 0 ? "rollout" : "step", resumed.step, point->path,
                            point->checkpoint.state.world_size));
    } catch (const Error&) {
      refusal = std::current_exception();
    }
  }
  if (collectives.all_gather_double(refusal ? 1 : 0, "resume").front() != 0) {
    if (refusal) std::rethrow_exception(refusal);
    throw ReportedElsewhere(ExitCode::kUsage);
  }
  at::Tensor step = at::full({1}, resumed.step, at::kLong);
  collectives.broadcast(step, LaneRank(0), "checkpoint");
  resumed.step = step.item<int64_t>();
  if (resumed.step == 0) return resumed;
  restore_tensors(collectives, point ? point->checkpoint : Checkpoint(), flat, optimizer);
  broadcast_rows(collectives, resumed.rl.old_log_probs);
  broadcast_rows(collectives, resumed.rl.ref_log_probs);
  return resumed;
}

void rewind_output(const std::string& output_dir, int64_t step) {
  rewind_output(output_dir, step, step);
}

void rewind_output(const std::string& output_dir, int64_t rollout, int64_t step) {
  // A new run has no record of its own yet, not even the evaluation at step 0.
  const int64_t kept = rollout > 0 ? step : -1;
  for (const std::string& records : record_files(output_dir)) {
    const bool of_rollouts = records == rollout_records(output_dir);
    cut_records_after(records, of_rollouts ? rollout : kept, of_rollouts ? "rollout" : "step");
  }
  cut_events_after(output_dir + "/tensorboard", kept, rollout);
  const std::vector<int64_t> later = set_aside_later_checkpoints(checkpoints_folder(output_dir), rollout);
  if (!later.empty()) {
    log::warning(fmt::format("checkpoints of later steps ({}) were renamed to set_aside_step_N in {}",
                             fmt::join(later, ", "), checkpoints_folder(output_dir)));
  }
}

}  // namespace ringfold
