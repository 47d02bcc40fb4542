#include "ringfold/train/checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ringfold/base/error.h"
#include "ringfold/models/common/file_io.h"

namespace ringfold {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kComponent = "checkpoint";
constexpr const char *kOptimizerFile = "optimizer.safetensors", *kSamplesFile = "samples.safetensors",
                     *kStateFile = "state.json", *kWeightsFolder = "hf", *kConfigFile = "hf/config.json";
constexpr const char *kOldLogProbs = "old_log_probs", *kRefLogProbs = "ref_log_probs", *kCounts = ".counts";
constexpr int kSchema = 1;

// A flat tensor of the run, and the suffix of its parts in a checkpoint.
struct FlatState {
  const char* suffix;
  at::Tensor flat;
};

std::vector<FlatState> optimizer_state(FlatParameters& flat, const AdamW& optimizer) {
  std::vector<FlatState> state = {{".exp_avg", optimizer.first_moment()}, {".exp_avg_sq", optimizer.second_moment()}};
  if (!flat.masters().is_same(flat.values())) state.push_back({".master", flat.masters()});
  return state;
}

void add_parts(const FlatParameters& parameters, const FlatState& state, bool copied, std::vector<NamedTensor>& to) {
  const at::Tensor flat = copied ? state.flat.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true) : state.flat;
  for (NamedTensor& part : parameters.parts_of(flat)) to.push_back({part.name + state.suffix, std::move(part.value)});
}

// Rows of unequal length as two flat tensors; none at all as no tensor.
void pack_rows(const std::string& name, const std::vector<std::vector<double>>& rows, std::vector<NamedTensor>& into) {
  if (rows.empty()) return;
  std::vector<double> values;
  std::vector<int64_t> counts;
  for (const std::vector<double>& row : rows) {
    values.insert(values.end(), row.begin(), row.end());
    counts.push_back(static_cast<int64_t>(row.size()));
  }
  into.push_back({name, at::tensor(values, at::kDouble)});
  into.push_back({name + kCounts, at::tensor(counts, at::kLong)});
}

const at::Tensor* find(const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &found->value;
}

std::vector<std::vector<double>> unpack_rows(const std::string& name, const std::vector<NamedTensor>& tensors) {
  std::vector<std::vector<double>> rows;
  const at::Tensor *values = find(tensors, name), *counts = find(tensors, name + kCounts);
  if (values == nullptr || counts == nullptr) return rows;
  RINGFOLD_ASSERT(counts->sum().item<int64_t>() == values->numel(), "log-probs that verify but do not add up");
  const double* at = values->const_data_ptr<double>();
  for (int64_t i = 0; i < counts->numel(); ++i) {
    const int64_t count = counts->const_data_ptr<int64_t>()[i];
    rows.emplace_back(at, at + count);
    at += count;
  }
  return rows;
}

std::vector<NamedTensor> as_list(std::map<std::string, at::Tensor> tensors) {
  std::vector<NamedTensor> list;
  for (auto& [name, value] : tensors) list.push_back({name, std::move(value)});
  return list;
}

std::string read_text(const std::string& path) {
  const InputFile file(kComponent, path);
  std::string text(file.size_bytes(), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

// Copies the tensors NAME + suffix into the parts of a flat tensor, and notes what does not fit.
void copy_parts(const FlatParameters& parameters, const FlatState& to, std::map<std::string, const at::Tensor*>& from,
                std::vector<std::string>& problems) {
  for (const NamedTensor& part : parameters.parts_of(to.flat)) {
    const std::string name = part.name + to.suffix;
    const auto found = from.find(name);
    if (found == from.end()) {
      problems.push_back(name + " missing");
      continue;
    }
    const at::Tensor& value = *found->second;
    if (value.sizes() != part.value.sizes() || value.scalar_type() != part.value.scalar_type()) {
      problems.push_back(fmt::format("{} {} [{}] instead of {} [{}]", name, at::toString(value.scalar_type()),
                                     fmt::join(value.sizes(), ", "), at::toString(part.value.scalar_type()),
                                     fmt::join(part.value.sizes(), ", ")));
    } else {
      part.value.copy_(value);
    }
    from.erase(found);
  }
}

}  // namespace

std::string to_json(const CheckpointState& state) {
  Json packs = Json::object(), facts = Json::object();
  for (const auto& [size, count] : state.packs_by_size) packs[std::to_string(size)] = count;
  for (const auto& [name, value] : state.facts) facts[name] = value;
  const Json json = {{"schema", kSchema},
                     {"step", state.step},
                     {"optimizer_steps", state.optimizer_steps},
                     {"world_size", state.world_size},
                     {"packs_by_cp_size", packs},
                     {"settings", facts}};
  return json.dump(1) + "\n";
}

CheckpointState parse_checkpoint_state(const std::string& text, const std::string& file) {
  try {
    const Json json = Json::parse(text);
    if (json.at("schema").get<int>() != kSchema) {
      throw DataError(fmt::format("[{}] {}: schema: got {}, expected {}. Hint: resume with the version that wrote it",
                                  kComponent, file, json.at("schema").dump(), kSchema));
    }
    CheckpointState state;
    state.step = json.at("step").get<int64_t>();
    state.optimizer_steps = json.at("optimizer_steps").get<int64_t>();
    state.world_size = json.at("world_size").get<int>();
    for (const auto& [size, count] : json.at("packs_by_cp_size").items()) {
      state.packs_by_size[std::stoi(size)] = count.get<int64_t>();
    }
    for (const auto& [name, value] : json.at("settings").items()) state.facts.emplace_back(name, value);
    return state;
  } catch (const std::logic_error&) {  // std::stoi
  } catch (const Json::exception&) {
  }
  fail_input(kComponent, file, "state", "something else", "the JSON object that this program writes",
             "take another checkpoint: --resume PATH");
}

Checkpoint capture_checkpoint(CheckpointState state, const DenseModel& model, FlatParameters& flat,
                              const AdamW& optimizer, const RlFields& rl, bool copied) {
  Checkpoint checkpoint;
  checkpoint.state = std::move(state);
  checkpoint.state.optimizer_steps = optimizer.steps();
  checkpoint.config_json = exported_config(model);
  add_parts(flat, {"", flat.values()}, copied, checkpoint.weights);
  for (const FlatState& part : optimizer_state(flat, optimizer)) add_parts(flat, part, copied, checkpoint.optimizer);
  pack_rows(kOldLogProbs, rl.old_log_probs, checkpoint.samples);
  pack_rows(kRefLogProbs, rl.ref_log_probs, checkpoint.samples);
  return checkpoint;
}

std::string write_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const CheckpointStage& stage) {
  return write_checkpoint_folder(
      folder, checkpoint.state.step,
      [&](const std::string& aside) {
        write_safetensors_folder(fmt::format("{}/{}", aside, kWeightsFolder), checkpoint.weights);
        write_text_file(kComponent, fmt::format("{}/{}", aside, kConfigFile), checkpoint.config_json);
        if (stage) stage("weights");
        write_safetensors(fmt::format("{}/{}", aside, kOptimizerFile), checkpoint.optimizer);
        if (!checkpoint.samples.empty()) {
          write_safetensors(fmt::format("{}/{}", aside, kSamplesFile), checkpoint.samples);
        }
        write_text_file(kComponent, fmt::format("{}/{}", aside, kStateFile), to_json(checkpoint.state));
      },
      stage);
}

Checkpoint read_checkpoint(const std::string& path) {
  verify_checkpoint(path);
  Checkpoint checkpoint;
  const std::string state_file = fmt::format("{}/{}", path, kStateFile);
  checkpoint.state = parse_checkpoint_state(read_text(state_file), state_file);
  checkpoint.config_json = read_text(fmt::format("{}/{}", path, kConfigFile));
  checkpoint.weights = as_list(read_safetensors_folder(fmt::format("{}/{}", path, kWeightsFolder)));
  checkpoint.optimizer = as_list(read_safetensors(fmt::format("{}/{}", path, kOptimizerFile)));
  const std::string samples = fmt::format("{}/{}", path, kSamplesFile);
  if (std::filesystem::exists(samples)) checkpoint.samples = as_list(read_safetensors(samples));
  return checkpoint;
}

void restore_tensors(const Checkpoint& checkpoint, const std::string& path, FlatParameters& flat, AdamW& optimizer) {
  const c10::NoGradGuard no_grad;
  std::map<std::string, const at::Tensor*> left;
  for (const NamedTensor& tensor : checkpoint.weights) left[tensor.name] = &tensor.value;
  for (const NamedTensor& tensor : checkpoint.optimizer) left[tensor.name] = &tensor.value;
  std::vector<std::string> problems;
  copy_parts(flat, {"", flat.values()}, left, problems);
  for (const FlatState& part : optimizer_state(flat, optimizer)) copy_parts(flat, part, left, problems);
  for (const auto& [name, value] : left) problems.push_back(name + " extra");
  if (!problems.empty()) {
    constexpr size_t kShown = 5;
    const size_t shown = std::min(kShown, problems.size());
    throw DataError(
        fmt::format("[{}] {}: got {} tensors that are not the model's ({}{}), expected those of this model "
                    "and --dtype. Hint: resume with the model that the checkpoint is of",
                    kComponent, path, problems.size(),
                    fmt::join(problems.begin(), problems.begin() + static_cast<ptrdiff_t>(shown), "; "),
                    shown < problems.size() ? "; ..." : ""));
  }
  optimizer.set_steps(checkpoint.state.optimizer_steps);
}

RlFields rl_fields_of(const std::vector<NamedTensor>& samples) {
  RlFields rl;
  rl.old_log_probs = unpack_rows(kOldLogProbs, samples);
  rl.ref_log_probs = unpack_rows(kRefLogProbs, samples);
  return rl;
}

}  // namespace ringfold
