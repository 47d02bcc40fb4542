// A tiny policy, prompts, and jobs of `ringfold rl` on them: the real binary, real processes.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/run_binary.h"

namespace ringfold {

inline constexpr const char* kRlConfig =
    R"({"model_type":"qwen3","architectures":["Qwen3ForCausalLM"],"vocab_size":12,"hidden_size":32,
"intermediate_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,
"rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":true,"initializer_range":0.1,
"max_position_embeddings":128})";

class RlJob : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = write_temp("rl", "");
    std::filesystem::remove(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream(at("config.json")) << kRlConfig;
    // "Say the digit after the last one, then stop": the digits are 0 to 7, 8 separates, 9 stops.
    std::ofstream prompts(at("prompts.jsonl"));
    for (int i = 0; i < 32; ++i) {
      nlohmann::json record;
      for (int t = 0; t < 2 + i % 5; ++t) record["tokens"].push_back((i * 3 + t * 5) % 8);
      const int last = record["tokens"].back();
      for (const int token : {8, (last + 1) % 8, 9}) record["tokens"].push_back(token);
      record["response_length"] = 2;
      prompts << record.dump() << "\n";
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string at(const std::string& name) const { return folder_ + "/" + name; }

  // `ringfold launch -n RANKS -- COMMAND ...`
  std::vector<std::string> job(const std::string& command, const std::vector<std::string>& more,
                               const std::string& out = "out", int ranks = 2) const {
    std::vector<std::string> all = {"launch",
                                    "-n",
                                    std::to_string(ranks),
                                    "--",
                                    command,
                                    "--model-config",
                                    at("config.json"),
                                    "--init-seed",
                                    "3",
                                    "--data",
                                    at("prompts.jsonl"),
                                    "--output-dir",
                                    at(out),
                                    "--dynamic-context-parallel",
                                    "--use-dynamic-batch-size",
                                    "--calculate-per-token-loss",
                                    "--rollout-max-context-len",
                                    "32",
                                    "--max-tokens-per-gpu",
                                    "16",
                                    "--comm-timeout-seconds",
                                    "60"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome launch(const std::vector<std::string>& more, const std::string& out = "out",
                 const std::vector<std::pair<std::string, std::string>>& environment = {}) const {
    return run_binary(job("rl", more, out), environment);
  }

  std::vector<nlohmann::json> records(const std::string& name) const {
    std::vector<nlohmann::json> all;
    std::ifstream file(at(name));
    for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

  std::string folder_;
};

}  // namespace ringfold
