// A folder for the runs of one test, and what their files say.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_binary.h"

namespace ringfold {

// A model that runs within milliseconds.
inline constexpr const char* kTinyConfig =
    R"({"model_type":"qwen3","architectures":["Qwen3ForCausalLM"],"vocab_size":64,"hidden_size":16,
"intermediate_size":24,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,
"rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":true,"initializer_range":0.3,
"max_position_embeddings":1024})";

class RunFolder : public ::testing::Test {
 protected:
  RunFolder() : folder_(write_temp("run", "")) {
    std::filesystem::remove(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~RunFolder() override { std::filesystem::remove_all(folder_); }

  std::string at(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(at(name)) << text; }

  // The lines of a .jsonl file; none where there is no file.
  std::vector<nlohmann::json> records(const std::string& name) const {
    std::vector<nlohmann::json> all;
    std::ifstream file(at(name));
    for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

  const std::string folder_;
};

}  // namespace ringfold
