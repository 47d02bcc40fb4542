#include "ringfold/models/llama/llama2c.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <utility>

#include "ringfold/models/common/config.h"
#include "ringfold/models/common/file_io.h"
#include "ringfold/models/common/safetensors.h"

namespace ringfold {
namespace {

constexpr int32_t kVersionedMagic = 0x616b3432;  // "ak42": the newer formats
constexpr const char* kHint = "only the legacy .bin of llama2.c (version 0, fp32) is read";

// dim, hidden_dim, layers, heads, kv heads, vocabulary (negative: the head is not tied), context.
using Header = std::array<int32_t, 7>;

ModelConfig read_header(const InputFile& file, Header& header) {
  if (file.size_bytes() < sizeof header) {
    file.fail("file size", fmt::format("{} bytes", file.size_bytes()), "a header of 28 bytes", kHint);
  }
  file.read_at(0, header.data(), sizeof header);
  if (header[0] == kVersionedMagic) file.fail("header", "a versioned format ('ak42')", "the legacy header", kHint);
  // The limits keep every product of sizes within 63 bits.
  constexpr int64_t kMillion = 1 << 20;
  constexpr std::pair<const char*, int64_t> kFields[] = {
      {"dim", kMillion},        {"hidden_dim", kMillion}, {"n_layers", 4096},        {"n_heads", kMillion},
      {"n_kv_heads", kMillion}, {"vocab_size", kMillion}, {"max_seq_len", kMillion},
  };
  for (size_t i = 0; i < header.size(); ++i) {
    const auto& [name, largest] = kFields[i];
    const int64_t value = i == 5 ? std::abs(static_cast<int64_t>(header[i])) : header[i];
    if (value < 1 || value > largest) {
      file.fail(fmt::format("header field {}", name), fmt::format("{}", header[i]), fmt::format("1 .. {}", largest),
                kHint);
    }
  }
  const auto [dim, hidden, layers, heads, kv_heads, vocabulary, context] = header;
  if (dim % heads != 0 || (dim / heads) % 2 != 0 || heads % kv_heads != 0) {
    file.fail("header", fmt::format("dim {}, n_heads {}, n_kv_heads {}", dim, heads, kv_heads),
              "an even head size and heads that divide", kHint);
  }
  ModelConfig config;
  config.architecture = Architecture::kLlama;
  config.vocab_size = std::abs(static_cast<int64_t>(vocabulary));
  config.hidden_size = dim;
  config.intermediate_size = hidden;
  config.num_hidden_layers = layers;
  config.num_attention_heads = heads;
  config.num_key_value_heads = kv_heads;
  config.head_dim = dim / heads;
  config.rms_norm_eps = 1e-5;
  config.max_position_embeddings = context;
  config.tie_word_embeddings = vocabulary > 0;
  return config;
}

// Two tables of sines and cosines that llama2.c stores and the configuration gives.
int64_t rope_table_floats(const ModelConfig& config) {
  return config.max_position_embeddings * config.head_dim;
}

void check_size(const InputFile& file, const ModelConfig& config) {
  const int64_t q_dim = config.num_attention_heads * config.head_dim;
  const int64_t kv_dim = config.num_key_value_heads * config.head_dim;
  const int64_t layer_floats = config.hidden_size * (2 + 2 * q_dim + 2 * kv_dim + 3 * config.intermediate_size);
  const int64_t table_floats = config.vocab_size * config.hidden_size * (config.tie_word_embeddings ? 1 : 2);
  const int64_t floats =
      config.num_hidden_layers * layer_floats + config.hidden_size + rope_table_floats(config) + table_floats;
  const auto expected = static_cast<uint64_t>(floats) * sizeof(float) + sizeof(Header);
  if (file.size_bytes() != expected) {
    file.fail("file size", fmt::format("{} bytes", file.size_bytes()),
              fmt::format("{} bytes for {} layers of {}", expected, config.num_hidden_layers, config.hidden_size),
              "the file is cut off, or of another version");
  }
}

// Pairs (0,1), (2,3), ... of each head become pairs (0, d/2), (1, d/2 + 1), ...: even rows first, then odd ones.
at::Tensor to_half_rotation(const at::Tensor& weight, int64_t head_dim) {
  const int64_t rows = weight.size(0), columns = weight.size(1);
  return weight.view({rows / head_dim, head_dim / 2, 2, columns}).transpose(1, 2).reshape({rows, columns});
}

}  // namespace

void convert_llama2c(const std::string& path, const std::string& folder) {
  const InputFile file("convert", path);
  Header header;
  const ModelConfig config = read_header(file, header);
  const int64_t layers = config.num_hidden_layers, hidden = config.hidden_size, head_dim = config.head_dim;
  const int64_t q_dim = config.num_attention_heads * head_dim, kv_dim = config.num_key_value_heads * head_dim;

  check_size(file, config);

  uint64_t offset = sizeof header;
  const auto take = [&](at::IntArrayRef shape) {
    const at::Tensor value = at::empty(shape, at::TensorOptions(at::kFloat));
    const auto bytes = static_cast<uint64_t>(value.numel()) * sizeof(float);
    file.read_at(offset, value.data_ptr(), bytes);
    offset += bytes;
    return value;
  };
  std::vector<NamedTensor> tensors;
  const auto take_layers = [&](const std::string& name, std::vector<int64_t> shape, bool rotated) {
    for (int64_t i = 0; i < layers; ++i) {
      const at::Tensor value = take(shape);
      tensors.push_back(
          {fmt::format("model.layers.{}.{}.weight", i, name), rotated ? to_half_rotation(value, head_dim) : value});
    }
  };
  tensors.push_back({"model.embed_tokens.weight", take({config.vocab_size, hidden})});
  take_layers("input_layernorm", {hidden}, false);
  take_layers("self_attn.q_proj", {q_dim, hidden}, true);
  take_layers("self_attn.k_proj", {kv_dim, hidden}, true);
  take_layers("self_attn.v_proj", {kv_dim, hidden}, false);
  take_layers("self_attn.o_proj", {hidden, q_dim}, false);
  take_layers("post_attention_layernorm", {hidden}, false);
  take_layers("mlp.gate_proj", {config.intermediate_size, hidden}, false);
  take_layers("mlp.down_proj", {hidden, config.intermediate_size}, false);
  take_layers("mlp.up_proj", {config.intermediate_size, hidden}, false);
  tensors.push_back({"model.norm.weight", take({hidden})});
  offset += static_cast<uint64_t>(rope_table_floats(config)) * sizeof(float);
  if (!config.tie_word_embeddings) tensors.push_back({"lm_head.weight", take({config.vocab_size, hidden})});

  write_safetensors_folder(folder, tensors);
  write_text_file("convert", folder + "/config.json", config_json(config, "float32"));
}

}  // namespace ringfold
