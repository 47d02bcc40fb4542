// Where the parameters of the dense decoder come from and go to: drawn, loaded, exported.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <thread>

#include "ringfold/base/error.h"
#include "ringfold/base/hash.h"
#include "ringfold/models/common/file_io.h"
#include "ringfold/models/qwen3/model.h"

namespace ringfold {
namespace {

constexpr const char* kEmbeddingName = "model.embed_tokens.weight";
constexpr const char* kHeadName = "lm_head.weight";

enum class Kind { kMatrix, kNorm, kBias };

Kind kind_of(const std::string& name) {
  if (name.ends_with("norm.weight")) return Kind::kNorm;
  return name.ends_with(".bias") ? Kind::kBias : Kind::kMatrix;
}

// Values are drawn in blocks with a generator each: they depend on seed, name and place alone, and all cores draw.
constexpr int64_t kDrawBlock = int64_t{1} << 22;

struct DrawTask {
  const Parameter* parameter;
  int64_t begin, count;
};

void draw(const DrawTask& task, double range, uint64_t seed) {
  Hash hash;
  hash.add(seed);
  hash.add(std::string_view(task.parameter->name));
  hash.add(static_cast<uint64_t>(task.begin));
  const at::Tensor values =
      at::normal(0.0, range, {task.count}, at::detail::createCPUGenerator(hash.value()), at::TensorOptions(at::kFloat));
  task.parameter->value.view(-1).narrow(0, task.begin, task.count).copy_(values);
}

void draw_all(const std::vector<DrawTask>& tasks, double range, uint64_t seed) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    const at::NoGradGuard no_grad;  // of this thread
    for (size_t i = next++; i < tasks.size(); i = next++) draw(tasks[i], range, seed);
  };
  std::vector<std::jthread> helpers;  // not ATen's pool: its parallel loops are serial in code built without OpenMP
  for (size_t i = 1; i < std::min<size_t>(tasks.size(), static_cast<size_t>(at::get_num_threads())); ++i) {
    helpers.emplace_back(work);
  }
  work();
}

std::string list_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 20;
  const size_t shown = std::min(names.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

// Checkpoints of Llama 2 carry the RoPE frequencies, which the configuration gives.
bool is_derived(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq");
}

[[noreturn]] void fail_load(const std::string& folder, const std::string& problem) {
  throw DataError(
      fmt::format("[model] {}: weights: got {}, expected exactly the tensors of its config.json. Hint: "
                  "config.json and weights must come from the same model",
                  folder, problem));
}

void check_tied_head(const std::string& folder, std::map<std::string, at::Tensor>& loaded) {
  const auto head = loaded.find(kHeadName);
  const auto embedding = loaded.find(kEmbeddingName);
  if (head == loaded.end() || embedding == loaded.end()) return;
  if (head->second.sizes() != embedding->second.sizes() || !at::equal(head->second, embedding->second)) {
    throw DataError(
        fmt::format("[model] {}: {}: got values different from {}, expected equal ones as config.json says "
                    "tie_word_embeddings. Hint: set tie_word_embeddings to false, or remove the head",
                    folder, kHeadName, kEmbeddingName));
  }
  loaded.erase(head);
}

void check_names(const std::string& folder, const std::vector<Parameter>& parameters,
                 const std::map<std::string, at::Tensor>& loaded) {
  std::vector<std::string> missing, misshapen, extra;
  std::map<std::string, const Parameter*> wanted;
  for (const Parameter& parameter : parameters) {
    wanted[parameter.name] = &parameter;
    const auto found = loaded.find(parameter.name);
    if (found == loaded.end()) {
      missing.push_back(parameter.name);
    } else if (found->second.sizes() != parameter.value.sizes()) {
      misshapen.push_back(fmt::format("{} [{}] instead of [{}]", parameter.name, fmt::join(found->second.sizes(), ", "),
                                      fmt::join(parameter.value.sizes(), ", ")));
    } else if (!at::isFloatingType(found->second.scalar_type())) {
      misshapen.push_back(fmt::format("{} of type {}", parameter.name, at::toString(found->second.scalar_type())));
    }
  }
  for (const auto& [name, value] : loaded) {
    if (!wanted.contains(name) && !is_derived(name)) extra.push_back(name);
  }
  std::vector<std::string> problems;
  if (!missing.empty()) problems.push_back(fmt::format("{} missing: {}", missing.size(), list_names(missing)));
  if (!extra.empty()) problems.push_back(fmt::format("{} extra: {}", extra.size(), list_names(extra)));
  if (!misshapen.empty()) problems.push_back(fmt::format("{} misshapen: {}", misshapen.size(), list_names(misshapen)));
  if (!problems.empty()) fail_load(folder, fmt::format("{}", fmt::join(problems, "; ")));
}

}  // namespace

// Makes every parameter with its name and shape, values still unset.
void DenseModel::build(at::TensorOptions options) {
  const ModelConfig& c = config_;
  const auto make = [&](const std::string& name, at::IntArrayRef shape) {
    const at::Tensor value = at::empty(shape, options).requires_grad_();
    parameters_.push_back({name, value, Sharding{}, kind_of(name) == Kind::kMatrix});
    return value;
  };
  embedding_ = make(kEmbeddingName, {c.vocab_size, c.hidden_size});
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    const auto project = [&](const std::string& name, int64_t out, int64_t in, bool has_bias, at::Tensor& bias) {
      const at::Tensor weight = make(prefix + name + ".weight", {out, in});
      if (has_bias) bias = make(prefix + name + ".bias", {out});
      return weight;
    };
    const int64_t q_dim = c.num_attention_heads * c.head_dim, kv_dim = c.num_key_value_heads * c.head_dim;
    DenseLayer at;
    at.input_norm = make(prefix + "input_layernorm.weight", {c.hidden_size});
    at.q = project("self_attn.q_proj", q_dim, c.hidden_size, c.attention_bias, at.q_bias);
    at.k = project("self_attn.k_proj", kv_dim, c.hidden_size, c.attention_bias, at.k_bias);
    at.v = project("self_attn.v_proj", kv_dim, c.hidden_size, c.attention_bias, at.v_bias);
    at.o = project("self_attn.o_proj", c.hidden_size, q_dim, c.attention_bias, at.o_bias);
    if (c.qk_norm) {
      at.q_norm = make(prefix + "self_attn.q_norm.weight", {c.head_dim});
      at.k_norm = make(prefix + "self_attn.k_norm.weight", {c.head_dim});
    }
    at.post_norm = make(prefix + "post_attention_layernorm.weight", {c.hidden_size});
    at.gate = project("mlp.gate_proj", c.intermediate_size, c.hidden_size, c.mlp_bias, at.gate_bias);
    at.up = project("mlp.up_proj", c.intermediate_size, c.hidden_size, c.mlp_bias, at.up_bias);
    at.down = project("mlp.down_proj", c.hidden_size, c.intermediate_size, c.mlp_bias, at.down_bias);
    layers_.push_back(std::move(at));
  }
  final_norm_ = make("model.norm.weight", {c.hidden_size});
  if (!c.tie_word_embeddings) head_ = make(kHeadName, {c.vocab_size, c.hidden_size});
}

DenseModel::DenseModel(const ModelConfig& config, at::ScalarType dtype, uint64_t init_seed, at::Device device)
    : config_(config) {
  build(at::TensorOptions(dtype).device(device));
  const at::NoGradGuard no_grad;
  std::vector<DrawTask> tasks;
  for (const Parameter& parameter : parameters_) {
    const Kind kind = kind_of(parameter.name);
    if (kind != Kind::kMatrix) {
      parameter.value.fill_(kind == Kind::kNorm ? 1 : 0);
      continue;
    }
    const int64_t count = parameter.value.numel();
    for (int64_t begin = 0; begin < count; begin += kDrawBlock) {
      tasks.push_back({&parameter, begin, std::min(kDrawBlock, count - begin)});
    }
  }
  draw_all(tasks, config_.initializer_range, init_seed);
}

DenseModel::DenseModel(const ModelConfig& config, at::ScalarType dtype, const std::string& folder, at::Device device)
    : config_(config) {
  build(at::TensorOptions(dtype).device(device));
  std::map<std::string, at::Tensor> loaded = read_safetensors_folder(folder);
  if (config_.tie_word_embeddings) check_tied_head(folder, loaded);
  check_names(folder, parameters_, loaded);
  const at::NoGradGuard no_grad;
  for (Parameter& parameter : parameters_) parameter.value.copy_(loaded.at(parameter.name));
}

std::vector<at::Tensor> DenseModel::layer_parameters(int layer) const {
  const DenseLayer& at = layers_[static_cast<size_t>(layer)];
  std::vector<at::Tensor> all = {at.input_norm, at.q,         at.q_bias, at.k,       at.k_bias, at.v,
                                 at.v_bias,     at.o,         at.o_bias, at.q_norm,  at.k_norm, at.post_norm,
                                 at.gate,       at.gate_bias, at.up,     at.up_bias, at.down,   at.down_bias};
  std::erase_if(all, [](const at::Tensor& tensor) { return !tensor.defined(); });
  return all;
}

std::vector<NamedTensor> DenseModel::state() const {
  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : parameters_) tensors.push_back({parameter.name, parameter.value.detach()});
  return tensors;
}

std::string exported_config(const DenseModel& model) {
  const at::ScalarType type = model.head_weight().scalar_type();
  return config_json(model.config(), type == at::kDouble ? "float64" : type == at::kBFloat16 ? "bfloat16" : "float32");
}

void export_hf(const DenseModel& model, const std::string& folder) {
  write_safetensors_folder(folder, model.state());
  write_text_file("model", folder + "/config.json", exported_config(model));
}

}  // namespace ringfold
