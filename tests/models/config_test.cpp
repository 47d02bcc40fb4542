#include "ringfold/models/common/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/test_tools.h"
#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json qwen3() {
  return {{"model_type", "qwen3"},
          {"architectures", {"Qwen3ForCausalLM"}},
          {"vocab_size", 100},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 32},
          {"rope_theta", 1e6},
          {"rope_scaling", nullptr},
          {"tie_word_embeddings", true},
          {"max_position_embeddings", 1024},
          {"torch_dtype", "bfloat16"}};
}

std::string write_config(const std::string& text) {
  const std::string file = scratch_folder() + "/ringfold_config_test.json";
  std::ofstream(file) << text;
  return file;
}

ModelConfig load(const Json& json) {
  return load_model_config(write_config(json.dump()));
}

std::string refusal(const Json& changes) {
  Json json = qwen3();
  json.merge_patch(changes);
  return message_of<DataError>([&] { load(json); });
}

TEST(ModelConfig, reads_a_qwen3_file) {
  const ModelConfig config = load(qwen3());
  EXPECT_EQ(config.architecture, Architecture::kQwen3);
  EXPECT_EQ(config.vocab_size, 100);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 96);
  EXPECT_EQ(config.num_hidden_layers, 3);
  EXPECT_EQ(config.num_attention_heads, 4);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 1e6);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(config.max_position_embeddings, 1024);
  EXPECT_EQ(config.initializer_range, 0.02);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_FALSE(config.attention_bias);
}

TEST(ModelConfig, reads_the_5x_spelling_of_rope) {
  Json json = qwen3();
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e6}};
  json["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  json["dtype"] = "float32";
  EXPECT_EQ(load(json).rope_theta, 5e6);
}

TEST(ModelConfig, llama_defaults) {
  Json json = qwen3();
  json["model_type"] = "llama";
  for (const char* key : {"architectures", "num_key_value_heads", "head_dim", "rope_theta", "tie_word_embeddings"}) {
    json.erase(key);
  }
  json["mlp_bias"] = true;
  json["attention_bias"] = true;
  const ModelConfig config = load(json);
  EXPECT_EQ(config.architecture, Architecture::kLlama);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_TRUE(config.mlp_bias);
  EXPECT_TRUE(config.attention_bias);
}

TEST(ModelConfig, reads_rope_scaling_in_both_spellings) {
  Json json = qwen3();
  json["model_type"] = "llama";
  json.erase("architectures");
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(load(json).rope_scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(load(json).rope_scaling.factor, 4);
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 8192}};
  const RopeScaling scaling = load(json).rope_scaling;
  EXPECT_EQ(scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(scaling.factor, 8);
  EXPECT_EQ(scaling.low_freq_factor, 1);
  EXPECT_EQ(scaling.high_freq_factor, 4);
  EXPECT_EQ(scaling.original_max_position_embeddings, 8192);
}

TEST(ModelConfig, refuses_by_name_what_is_not_built) {
  const auto names = [](const std::string& key, const std::string& value) {
    return AllOf(HasSubstr("[config]"), HasSubstr("ringfold_config_test.json"), HasSubstr("key " + key),
                 HasSubstr(value), HasSubstr("Hint:"));
  };
  EXPECT_THAT(refusal({{"model_type", "qwen3_moe"}}), names("model_type", "qwen3_moe"));
  EXPECT_THAT(refusal({{"model_type", "qwen3_vl"}}), names("model_type", "qwen3_vl"));
  EXPECT_THAT(refusal({{"model_type", "mistral"}}), names("model_type", "mistral"));
  EXPECT_THAT(refusal({{"architectures", {"Qwen3ForSequenceClassification"}}}), names("architectures", "Sequence"));
  EXPECT_THAT(refusal({{"hidden_act", "gelu"}}), names("hidden_act", "gelu"));
  EXPECT_THAT(refusal({{"num_experts", 8}}), names("num_experts", "not built"));
  EXPECT_THAT(refusal({{"num_local_experts", 8}}), names("num_local_experts", "not built"));
  EXPECT_THAT(refusal({{"vision_config", Json::object()}}), names("vision_config", "not built"));
  EXPECT_THAT(refusal({{"quantization_config", Json::object()}}), names("quantization_config", "not built"));
  EXPECT_THAT(refusal({{"attention_dropout", 0.1}}), names("attention_dropout", "0.1"));
  EXPECT_THAT(refusal({{"partial_rotary_factor", 0.25}}), names("partial_rotary_factor", "0.25"));
  EXPECT_THAT(refusal({{"mlp_bias", true}}), names("mlp_bias", "true"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}),
              names("rope_scaling.rope_type", "yarn"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}}}}),
              names("rope_scaling.type", "dynamic"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"type", "default"}, {"mrope_section", {24, 20, 20}}}}}),
              names("rope_scaling.mrope_section", "M-RoPE"));
  EXPECT_THAT(refusal({{"rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}}}),
              names("rope_parameters.full_attention", "per layer type"));
  EXPECT_THAT(refusal({{"layer_types", {"full_attention", "sliding_attention", "full_attention"}}}),
              names("layer_types", "sliding_attention"));
  EXPECT_THAT(refusal({{"use_sliding_window", true}, {"sliding_window", 4096}, {"max_window_layers", 2}}),
              names("use_sliding_window", "not built"));
}

TEST(ModelConfig, a_sliding_window_that_is_off_is_accepted) {
  EXPECT_EQ(refusal({{"use_sliding_window", false}, {"sliding_window", 4096}}), "nothing thrown");
  EXPECT_EQ(refusal({{"use_sliding_window", true}, {"sliding_window", 4096}, {"max_window_layers", 3}}),
            "nothing thrown");
}

TEST(ModelConfig, names_the_key_that_is_missing_or_ill_typed) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    EXPECT_THAT(refusal({{key, nullptr}}), AllOf(HasSubstr(key), HasSubstr("got nothing")));
    for (const Json& bad : {Json("64"), Json(0), Json(-3), Json(1.5), Json(int64_t{1} << 40)}) {
      EXPECT_THAT(refusal({{key, bad}}), AllOf(HasSubstr(key), HasSubstr("got " + bad.dump())));
    }
  }
  EXPECT_THAT(refusal({{"model_type", nullptr}}), AllOf(HasSubstr("model_type"), HasSubstr("got nothing")));
  EXPECT_THAT(refusal({{"tie_word_embeddings", "yes"}}), HasSubstr("tie_word_embeddings: got \"yes\""));
  EXPECT_THAT(refusal({{"rms_norm_eps", "small"}}), HasSubstr("rms_norm_eps: got \"small\""));
  EXPECT_THAT(refusal({{"rope_scaling", 3}}), HasSubstr("rope_scaling: got 3"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"type", "linear"}}}}), HasSubstr("rope_scaling.factor: got nothing"));
}

TEST(ModelConfig, refuses_values_that_contradict_each_other) {
  EXPECT_THAT(refusal({{"num_key_value_heads", 3}}), HasSubstr("num_key_value_heads: got 3"));
  EXPECT_THAT(refusal({{"head_dim", nullptr}, {"hidden_size", 66}}), HasSubstr("key head_dim: got nothing"));
  EXPECT_THAT(refusal({{"head_dim", 15}}), HasSubstr("head_dim: got 15"));
  EXPECT_THAT(refusal({{"rope_parameters", {{"rope_theta", 5e5}}}}), HasSubstr("rope_parameters.rope_theta"));
  EXPECT_THAT(refusal({{"rope_scaling",
                        {{"type", "llama3"},
                         {"factor", 8},
                         {"low_freq_factor", 4},
                         {"high_freq_factor", 1},
                         {"original_max_position_embeddings", 64}}}}),
              HasSubstr("high_freq_factor: got 1"));
}

TEST(ModelConfig, sizes_that_no_model_has_are_refused_before_they_overflow) {
  EXPECT_THAT(refusal({{"vocab_size", 2147483647},
                       {"hidden_size", 2147483647},
                       {"intermediate_size", 2147483647},
                       {"num_hidden_layers", 2147483647}}),
              HasSubstr("hidden_size: got a model of 3.0e+28 parameters, expected at most 1e+15"));
}

TEST(ModelConfig, a_message_shows_no_more_of_a_broken_file_than_a_line) {
  const std::string message = refusal({{"model_type", std::string(100000, 'x') + "\x1b[2J"}});
  EXPECT_LT(message.size(), 500U);
  EXPECT_THAT(
      message_of<DataError>([] { load_model_config(write_config("{\"model_type\":" + std::string(200000, '['))); }),
      HasSubstr("nested deeper than 32 levels"));
}

TEST(ModelConfig, a_broken_or_absent_file_is_named) {
  EXPECT_THAT(message_of<DataError>([] { load_model_config(write_config("{\"a\": ")); }),
              AllOf(HasSubstr("ringfold_config_test.json"), HasSubstr("broken JSON")));
  EXPECT_THAT(message_of<DataError>([] { load_model_config(write_config("[1]")); }), HasSubstr("type array"));
  EXPECT_THAT(message_of<DataError>([] { load_model_config("/nowhere/config.json"); }),
              AllOf(HasSubstr("/nowhere/config.json"), HasSubstr("cannot be read")));
}

TEST(ModelConfig, counts_parameters_and_flops_of_the_published_4b) {
  const char* shared = std::getenv("RINGFOLD_SHARED_DIR");
  const std::string folder = std::string(shared ? shared : "") + "/data/configs/qwen3_4b";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no reference data (RINGFOLD_SHARED_DIR)";
  const ModelConfig config = load_model_config(folder);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_NEAR(static_cast<double>(config.parameter_count()), 4.022e9, 0.001e9);
  const double flops = config.train_flops(1000, 440018);
  const double embedding_free = static_cast<double>(config.matrix_parameter_count());
  EXPECT_DOUBLE_EQ(flops, 6 * embedding_free * 1000 + 6.0 * 36 * 32 * 128 * 440018);
}

TEST(ModelConfig, what_is_written_reads_back) {
  ModelConfig config = load(qwen3());
  EXPECT_EQ(Json::parse(config_json(config, "float32"))["torch_dtype"], "float32");
  EXPECT_EQ(Json::parse(config_json(config, "float32"))["max_position_embeddings"], 1024);
  config.json.clear();
  config.architecture = Architecture::kLlama;
  config.qk_norm = false;
  config.mlp_bias = true;
  config.rope_scaling = {RopeScaling::Kind::kLlama3, 8, 1, 4, 512};
  const ModelConfig again = load_model_config(write_config(config_json(config, "float64")));
  EXPECT_EQ(again.architecture, Architecture::kLlama);
  EXPECT_EQ(again.parameter_count(), config.parameter_count());
  EXPECT_EQ(again.rope_theta, config.rope_theta);
  EXPECT_EQ(again.rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(again.rope_scaling.original_max_position_embeddings, 512);
  EXPECT_TRUE(again.mlp_bias);
}

}  // namespace
}  // namespace ringfold
