#include "ringfold/models/common/config.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ringfold/base/error.h"
#include "ringfold/base/outside_text.h"

namespace ringfold {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepestNesting = 32;

// JSON for a message: a broken file may hold any amount of it.
std::string shown(const Json& value) {
  return printable(value.dump());
}

// One JSON object of a config.json with readers that name file and key in every error.
class Keys {
 public:
  Keys(std::string file, std::string prefix, const Json& object)
      : file_(std::move(file)), prefix_(std::move(prefix)), object_(object) {}

  [[noreturn]] void fail(const std::string& key, const std::string& got, const std::string& expected,
                         const std::string& hint) const {
    throw DataError(fmt::format("[config] {}: key {}{}: got {}, expected {}. Hint: {}", file_, prefix_, printable(key),
                                printable(got), expected, hint));
  }
  bool has(const std::string& key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  const Json& at(const std::string& key) const { return object_.at(key); }

  int64_t size(const std::string& key) const {
    if (!has(key)) fail(key, "nothing", "a positive integer", "the key is required");
    const Json& value = object_.at(key);
    const bool fits = value.is_number_integer() && value <= std::numeric_limits<int32_t>::max() && value >= 1;
    if (!fits) fail(key, shown(value), "a positive 32-bit integer", "check the file against the published config.json");
    return value.get<int64_t>();
  }
  int64_t size_or(const std::string& key, int64_t fallback) const { return has(key) ? size(key) : fallback; }
  double positive_or(const std::string& key, double fallback) const {
    if (!has(key)) return fallback;
    const Json& value = object_.at(key);
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>())) {
      fail(key, shown(value), "a positive number", "check the file against the published config.json");
    }
    return value.get<double>();
  }
  double positive(const std::string& key) const {
    if (!has(key)) fail(key, "nothing", "a positive number", "the key is required here");
    return positive_or(key, 1);
  }
  bool flag_or(const std::string& key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!object_.at(key).is_boolean()) fail(key, shown(object_.at(key)), "true or false", "write it without quotes");
    return object_.at(key).get<bool>();
  }
  std::string text_or(const std::string& key, const std::string& fallback) const {
    if (!has(key)) return fallback;
    if (!object_.at(key).is_string()) fail(key, shown(object_.at(key)), "a string", "write it in quotes");
    return object_.at(key).get<std::string>();
  }
  Keys object(const std::string& key) const {
    if (!object_.at(key).is_object()) fail(key, shown(object_.at(key)), "an object or null", "see the published file");
    return {file_, prefix_ + key + ".", object_.at(key)};
  }

 private:
  std::string file_, prefix_;
  const Json& object_;
};

Architecture read_architecture(const Keys& keys) {
  if (!keys.has("model_type")) keys.fail("model_type", "nothing", "qwen3 or llama", "the key is required");
  const std::string type = keys.text_or("model_type", "");
  if (type != "qwen3" && type != "llama") {
    keys.fail("model_type", type, "qwen3 or llama", "other model families are not built yet");
  }
  const std::string wanted = type == "qwen3" ? "Qwen3ForCausalLM" : "LlamaForCausalLM";
  if (keys.has("architectures")) {
    const Json& names = keys.at("architectures");
    const bool ok = names.is_array() && names.size() == 1 && names[0] == wanted;
    if (!ok)
      keys.fail("architectures", shown(names), "[\"" + wanted + "\"]", "only the causal language model is built");
  }
  return type == "qwen3" ? Architecture::kQwen3 : Architecture::kLlama;
}

void refuse_sliding_window(const Keys& keys, int64_t layers) {
  if (keys.has("layer_types")) {
    const Json& types = keys.at("layer_types");
    if (!types.is_array() || static_cast<int64_t>(types.size()) != layers) {
      keys.fail("layer_types", shown(types), fmt::format("a list of {} names", layers), "one a layer");
    }
    for (const Json& type : types) {
      if (type != "full_attention") {
        keys.fail("layer_types", shown(type), "\"full_attention\" in every layer", "other layers are not built yet");
      }
    }
  } else if (keys.flag_or("use_sliding_window", false) && keys.has("sliding_window") &&
             keys.size_or("max_window_layers", 28) < layers) {
    keys.fail("use_sliding_window", "true", "false", "sliding-window attention is not built yet");
  }
}

// Features that change the result and are not built. Keys without effect on training (token ids, cache, dtype) pass.
void refuse_unbuilt(const Keys& keys, Architecture architecture, int64_t layers) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "text_config", "vision_config",
                          "linear_num_key_heads", "quantization_config"}) {
    if (keys.has(key)) keys.fail(key, "a value", "no such key", "this kind of model is not built yet");
  }
  const std::string act = keys.text_or("hidden_act", "silu");
  if (act != "silu") keys.fail("hidden_act", act, "silu", "other activations are not built yet");
  for (const char* key : {"attention_dropout", "partial_rotary_factor"}) {
    const double wanted = std::string(key) == "attention_dropout" ? 0 : 1;
    if (keys.has(key) && keys.at(key) != wanted) {
      keys.fail(key, shown(keys.at(key)), fmt::format("{}", wanted), "other values are not built yet");
    }
  }
  if (architecture == Architecture::kQwen3 && keys.flag_or("mlp_bias", false)) {
    keys.fail("mlp_bias", "true", "false", "Qwen3 has no bias in its MLP");
  }
  refuse_sliding_window(keys, layers);
}

RopeScaling read_scaling(const Keys& keys) {
  RopeScaling scaling;
  const std::string spelled = keys.has("rope_type") ? "rope_type" : "type";  // 4.x files before 4.43 say "type"
  const std::string type = keys.text_or(spelled, "default");
  if (keys.has("mrope_section")) keys.fail("mrope_section", "a value", "no such key", "M-RoPE is not built yet");
  if (keys.has("partial_rotary_factor") && keys.at("partial_rotary_factor") != 1) {
    keys.fail("partial_rotary_factor", shown(keys.at("partial_rotary_factor")), "1", "other values are not built yet");
  }
  if (type == "default") return scaling;
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::kLinear;
    scaling.factor = keys.positive("factor");
  } else if (type == "llama3") {
    scaling.kind = RopeScaling::Kind::kLlama3;
    scaling.factor = keys.positive("factor");
    scaling.low_freq_factor = keys.positive("low_freq_factor");
    scaling.high_freq_factor = keys.positive("high_freq_factor");
    scaling.original_max_position_embeddings = keys.size("original_max_position_embeddings");
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      keys.fail("high_freq_factor", fmt::format("{}", scaling.high_freq_factor),
                fmt::format("more than low_freq_factor ({})", scaling.low_freq_factor), "the two may be swapped");
    }
  } else {
    keys.fail(spelled, type, "default, linear or llama3", "other rope types are not built yet");
  }
  return scaling;
}

// 4.x: rope_theta and rope_scaling beside each other; 5.x: one object rope_parameters.
void read_rope(const Keys& keys, ModelConfig& config) {
  config.rope_theta = keys.positive_or("rope_theta", 10000);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!keys.has(key)) continue;
    const Keys inner = keys.object(key);
    for (const auto& [name, value] : keys.at(key).items()) {
      if (value.is_object()) inner.fail(name, "an object", "a plain value", "rope per layer type is not built yet");
    }
    config.rope_scaling = read_scaling(inner);
    const double theta = inner.positive_or("rope_theta", config.rope_theta);
    if (keys.has("rope_theta") && theta != config.rope_theta) {
      keys.fail("rope_theta", fmt::format("{}", config.rope_theta), fmt::format("{} as in {}.rope_theta", theta, key),
                "remove one of the two");
    }
    config.rope_theta = theta;
  }
}

void read_heads(const Keys& keys, ModelConfig& config) {
  config.num_attention_heads = keys.size("num_attention_heads");
  config.num_key_value_heads = keys.size_or("num_key_value_heads", config.num_attention_heads);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    keys.fail("num_key_value_heads", fmt::format("{}", config.num_key_value_heads),
              fmt::format("a divisor of num_attention_heads ({})", config.num_attention_heads),
              "each KV head serves the same number of query heads");
  }
  if (!keys.has("head_dim") && config.hidden_size % config.num_attention_heads != 0) {
    keys.fail("head_dim", "nothing", "a positive even integer",
              fmt::format("hidden_size {} does not divide by num_attention_heads {}", config.hidden_size,
                          config.num_attention_heads));
  }
  config.head_dim = keys.size_or("head_dim", config.hidden_size / config.num_attention_heads);
  if (config.head_dim % 2 != 0) {
    keys.fail("head_dim", fmt::format("{}", config.head_dim), "an even integer", "RoPE pairs two halves of the head");
  }
}

// In floating point, because absurd sizes overflow: what follows counts parameters in 64 bits.
void check_parameter_count(const Keys& keys, const ModelConfig& config) {
  constexpr double kMost = 1e15;
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  const double heads = real(config.num_attention_heads) + real(config.num_key_value_heads);
  const double layer =
      real(config.hidden_size) * (2 * real(config.head_dim) * heads + 3 * real(config.intermediate_size));
  const double count = real(config.num_hidden_layers) * layer + 2 * real(config.vocab_size) * real(config.hidden_size);
  if (count > kMost) {
    keys.fail("hidden_size", fmt::format("a model of {:.1e} parameters", count), fmt::format("at most {:.0e}", kMost),
              "check the sizes against the published config.json");
  }
}

std::string read_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in || std::filesystem::is_directory(file)) {
    throw DataError(
        fmt::format("[config] {}: got a file that cannot be read, expected a config.json. "
                    "Hint: give a Hugging Face model folder or its config.json",
                    file));
  }
  return text.str();
}

}  // namespace

int64_t ModelConfig::matrix_parameter_count() const {
  const int64_t heads = num_attention_heads, kv = num_key_value_heads;
  const int64_t attention = hidden_size * head_dim * (2 * heads + 2 * kv);
  const int64_t mlp = 3 * hidden_size * intermediate_size;
  return num_hidden_layers * (attention + mlp) + vocab_size * hidden_size;
}

int64_t ModelConfig::parameter_count() const {
  const int64_t qkv = (num_attention_heads + 2 * num_key_value_heads) * head_dim;
  int64_t layer = 2 * hidden_size;
  if (attention_bias) layer += qkv + hidden_size;
  if (mlp_bias) layer += 2 * intermediate_size + hidden_size;
  if (qk_norm) layer += 2 * head_dim;
  const int64_t embedding = tie_word_embeddings ? 0 : vocab_size * hidden_size;
  return matrix_parameter_count() + embedding + num_hidden_layers * layer + hidden_size;
}

double ModelConfig::train_flops(int64_t tokens, int64_t sum_squared_tokens) const {
  const double matrices = 6.0 * static_cast<double>(matrix_parameter_count()) * static_cast<double>(tokens);
  const double attention = 6.0 * static_cast<double>(num_hidden_layers * num_attention_heads * head_dim) *
                           static_cast<double>(sum_squared_tokens);
  return matrices + attention;
}

ModelConfig load_model_config(const std::string& path) {
  const std::string file = std::filesystem::is_directory(path) ? path + "/config.json" : path;
  return parse_model_config(read_text(file), file);
}

ModelConfig parse_model_config(const std::string& text, const std::string& file) {
  if (nested_deeper_than(text, kDeepestNesting)) {
    throw DataError(
        fmt::format("[config] {}: got JSON nested deeper than {} levels, expected an object. Hint: copy the "
                    "file again",
                    file, kDeepestNesting));
  }
  ModelConfig config;
  config.json = text;
  Json parsed;
  try {
    parsed = Json::parse(text);
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("[config] {}: got broken JSON ({}), expected an object. Hint: copy the file again",
                                file, printable(error.what(), 200)));
  }
  if (!parsed.is_object()) {
    throw DataError(fmt::format("[config] {}: got JSON of type {}, expected an object. Hint: copy the file again", file,
                                parsed.type_name()));
  }
  const Keys keys(file, "", parsed);
  config.architecture = read_architecture(keys);
  config.vocab_size = keys.size("vocab_size");
  config.hidden_size = keys.size("hidden_size");
  config.intermediate_size = keys.size("intermediate_size");
  config.num_hidden_layers = keys.size("num_hidden_layers");
  refuse_unbuilt(keys, config.architecture, config.num_hidden_layers);
  read_heads(keys, config);
  check_parameter_count(keys, config);
  config.rms_norm_eps = keys.positive_or("rms_norm_eps", 1e-6);
  read_rope(keys, config);
  config.max_position_embeddings = keys.size_or("max_position_embeddings", 0);
  config.initializer_range = keys.positive_or("initializer_range", 0.02);
  config.tie_word_embeddings = keys.flag_or("tie_word_embeddings", false);
  config.attention_bias = keys.flag_or("attention_bias", false);
  config.mlp_bias = keys.flag_or("mlp_bias", false);
  config.qk_norm = config.architecture == Architecture::kQwen3;
  return config;
}

std::string config_json(const ModelConfig& config, const std::string& dtype) {
  Json out = config.json.empty() ? Json::object() : Json::parse(config.json);
  if (config.json.empty()) {
    const bool qwen3 = config.architecture == Architecture::kQwen3;
    out["architectures"] = {qwen3 ? "Qwen3ForCausalLM" : "LlamaForCausalLM"};
    out["model_type"] = qwen3 ? "qwen3" : "llama";
    out["vocab_size"] = config.vocab_size;
    out["hidden_size"] = config.hidden_size;
    out["intermediate_size"] = config.intermediate_size;
    out["num_hidden_layers"] = config.num_hidden_layers;
    out["num_attention_heads"] = config.num_attention_heads;
    out["num_key_value_heads"] = config.num_key_value_heads;
    out["head_dim"] = config.head_dim;
    out["hidden_act"] = "silu";
    out["rms_norm_eps"] = config.rms_norm_eps;
    out["rope_theta"] = config.rope_theta;
    if (config.rope_scaling.kind == RopeScaling::Kind::kLinear) {
      out["rope_scaling"] = {{"rope_type", "linear"}, {"factor", config.rope_scaling.factor}};
    } else if (config.rope_scaling.kind == RopeScaling::Kind::kLlama3) {
      out["rope_scaling"] = {
          {"rope_type", "llama3"},
          {"factor", config.rope_scaling.factor},
          {"low_freq_factor", config.rope_scaling.low_freq_factor},
          {"high_freq_factor", config.rope_scaling.high_freq_factor},
          {"original_max_position_embeddings", config.rope_scaling.original_max_position_embeddings}};
    }
    if (config.max_position_embeddings > 0) out["max_position_embeddings"] = config.max_position_embeddings;
    out["initializer_range"] = config.initializer_range;
    out["tie_word_embeddings"] = config.tie_word_embeddings;
    out["attention_bias"] = config.attention_bias;
    if (!qwen3) out["mlp_bias"] = config.mlp_bias;
  }
  // Both spellings are kept when both are there; readers take the type of the weights from it.
  if (out.contains("dtype")) out["dtype"] = dtype;
  if (out.contains("torch_dtype") || !out.contains("dtype")) out["torch_dtype"] = dtype;
  return out.dump(2) + "\n";
}

}  // namespace ringfold
