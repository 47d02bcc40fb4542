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
constexpr const char *kFirstMoment = ".exp_avg", *kSecondMoment = ".exp_avg_sq", *kMaster = ".master";
constexpr int kSchema = 1;

// Owned state of the run, and the suffix of its tensors in a checkpoint.
struct OwnedState {
  const char* suffix;
  at::Tensor& owned;
};

std::vector<OwnedState> optimizer_state(FlatParameters& flat, AdamW& optimizer) {
  std::vector<OwnedState> state = {{kFirstMoment, optimizer.first_moment()},
                                   {kSecondMoment, optimizer.second_moment()}};
  if (flat.has_masters()) state.push_back({kMaster, flat.masters()});
  return state;
}

at::Tensor host_copy(const at::Tensor& flat) {
  return flat.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

void add_parts(const FlatParameters& parameters, const at::Tensor& flat, const std::string& suffix,
               std::vector<NamedTensor>& to) {
  for (NamedTensor& part : parameters.parts_of(flat)) to.push_back({part.name + suffix, std::move(part.value)});
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

using TensorsLeft = std::map<std::string, const at::Tensor*>;

// Notes which of the tensors NAME + suffix do not fit the parameters; takes them out of `left`.
void check_parts(const FlatParameters& parameters, const std::string& suffix, at::ScalarType type, TensorsLeft& left,
                 std::vector<std::string>& problems) {
  for (const FlatParameters::Segment& segment : parameters.segments()) {
    const std::string name = segment.name + suffix;
    const auto found = left.find(name);
    if (found == left.end()) {
      problems.push_back(name + " missing");
      continue;
    }
    const at::Tensor& value = *found->second;
    if (value.sizes() != segment.shape || value.scalar_type() != type) {
      problems.push_back(fmt::format("{} {} [{}] instead of {} [{}]", name, at::toString(value.scalar_type()),
                                     fmt::join(value.sizes(), ", "), at::toString(type),
                                     fmt::join(segment.shape, ", ")));
    }
    left.erase(found);
  }
}

// The tensors NAME + suffix in parameter order; nothing where the checkpoint is another rank's.
std::vector<NamedTensor> parts_with(const std::string& suffix, const FlatParameters& parameters,
                                    const std::vector<NamedTensor>& tensors) {
  std::map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : tensors) by_name[tensor.name] = &tensor;
  std::vector<NamedTensor> parts;
  if (tensors.empty()) return parts;
  for (const FlatParameters::Segment& segment : parameters.segments()) {
    parts.push_back(*by_name.at(segment.name + suffix));
  }
  return parts;
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

Checkpoint capture_checkpoint(Collectives& lane, CheckpointState state, const DenseModel& model, FlatParameters& flat,
                              AdamW& optimizer, const RlFields& rl, bool copied) {
  Checkpoint checkpoint;
  const bool is_main = lane.rank() == LaneRank(0);
  for (const OwnedState& part : optimizer_state(flat, optimizer)) {
    const at::Tensor whole = lane.size() > 1 ? flat.gather_state(lane, part.owned)
                             : copied        ? host_copy(part.owned)
                                             : part.owned;
    if (is_main) add_parts(flat, whole, part.suffix, checkpoint.optimizer);
  }
  if (!is_main) return checkpoint;
  checkpoint.state = std::move(state);
  checkpoint.state.optimizer_steps = optimizer.steps();
  checkpoint.config_json = exported_config(model);
  add_parts(flat, copied ? host_copy(flat.values()) : flat.values(), "", checkpoint.weights);
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

void require_same_tensors(const Checkpoint& checkpoint, const std::string& path, FlatParameters& flat) {
  TensorsLeft left;
  for (const NamedTensor& tensor : checkpoint.weights) left[tensor.name] = &tensor.value;
  for (const NamedTensor& tensor : checkpoint.optimizer) left[tensor.name] = &tensor.value;
  std::vector<std::string> problems;
  const at::ScalarType wide = flat.masters().scalar_type();
  check_parts(flat, "", flat.values().scalar_type(), left, problems);
  for (const char* suffix : {kFirstMoment, kSecondMoment}) check_parts(flat, suffix, wide, left, problems);
  if (flat.has_masters()) check_parts(flat, kMaster, wide, left, problems);
  for (const auto& [name, value] : left) problems.push_back(name + " extra");
  if (problems.empty()) return;
  constexpr size_t kShown = 5;
  const size_t shown = std::min(kShown, problems.size());
  throw DataError(
      fmt::format("[{}] {}: got {} tensors that are not the model's ({}{}), expected those of this model "
                  "and --dtype. Hint: resume with the model that the checkpoint is of",
                  kComponent, path, problems.size(),
                  fmt::join(problems.begin(), problems.begin() + static_cast<ptrdiff_t>(shown), "; "),
                  shown < problems.size() ? "; ..." : ""));
}

void restore_tensors(Collectives& lane, const Checkpoint& checkpoint, FlatParameters& flat, AdamW& optimizer) {
  const c10::NoGradGuard no_grad;
  const std::vector<NamedTensor> saved = parts_with("", flat, checkpoint.weights), own = flat.parts_of(flat.values());
  for (size_t i = 0; i < saved.size(); ++i) own[i].value.copy_(saved[i].value);
  at::Tensor bytes = flat.values().view(at::kByte);
  lane.broadcast(bytes, LaneRank(0), "checkpoint");
  for (const OwnedState& part : optimizer_state(flat, optimizer)) {
    flat.scatter_state(lane, parts_with(part.suffix, flat, checkpoint.optimizer), part.owned);
  }
  at::Tensor steps = at::full({1}, checkpoint.state.optimizer_steps, at::kLong);
  lane.broadcast(steps, LaneRank(0), "checkpoint");
  optimizer.set_steps(steps.item<int64_t>());
}

RlFields rl_fields_of(const std::vector<NamedTensor>& samples) {
  RlFields rl;
  rl.old_log_probs = unpack_rows(kOldLogProbs, samples);
  rl.ref_log_probs = unpack_rows(kRefLogProbs, samples);
  return rl;
}

}  // namespace ringfold
