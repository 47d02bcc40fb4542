// What a config.json says, for the dense decoder families (Qwen3, Llama).
#pragma once

#include <cstdint>
#include <string>

namespace ringfold {

enum class Architecture { kQwen3, kLlama };

// rope_scaling of Hugging Face configs. kLlama3: low/high frequency interpolation (Llama 3.1).
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3 } kind = Kind::kNone;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;
};

struct ModelConfig {
  Architecture architecture = Architecture::kQwen3;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  int64_t max_position_embeddings = 0;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm over the head dim of q and k, before RoPE (Qwen3)
  std::string json;      // the file as read, written out again with exported weights

  int64_t parameter_count() const;
  // Those that multiply every token: linear layers and the head, not the embedding table.
  int64_t matrix_parameter_count() const;
  // FLOPs of forward + backward: 6 * parameters in matrix products * tokens + 6 * layers * heads * head_dim * sum L^2.
  double train_flops(int64_t tokens, int64_t sum_squared_tokens) const;
};

// Reads a config.json (file, or folder that holds it). DataError names the file and the key: unknown model_type,
// missing or ill-typed key, features that are not built (sliding window, other rope types, other activations).
// All spellings of 4.x and 5.x files are read (rope_theta / rope_parameters, torch_dtype / dtype).
ModelConfig load_model_config(const std::string& path);
// The same for a text; `file` stands in its errors only.
ModelConfig parse_model_config(const std::string& text, const std::string& file);

// The text of a config.json for weights of `dtype` ("float32", ...): the file as read with its dtype replaced, or, for
// a config made in code, all of its fields.
std::string config_json(const ModelConfig& config, const std::string& dtype);

}  // namespace ringfold
