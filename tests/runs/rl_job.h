// A tiny policy, prompts, and jobs of `ringfold rl` on them: the real binary, real processes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runs/run_folder.h"

namespace ringfold {

inline constexpr const char* kRlConfig =
    R"({"model_type":"qwen3","architectures":["Qwen3ForCausalLM"],"vocab_size":12,"hidden_size":32,
"intermediate_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,
"rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":true,"initializer_range":0.1,
"max_position_embeddings":128})";

// Four responses of up to three tokens to each of eight prompts.
inline const Arguments kSmallRollout = {"--rollout-batch-size",       "8", "--n-samples-per-prompt",   "4",
                                        "--rollout-max-response-len", "3", "--rollout-stop-token-ids", "9"};

class RlJob : public RunFolder {
 protected:
  RlJob() {
    write("config.json", kRlConfig);
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

  // `ringfold launch -n RANKS -- COMMAND ...`
  Arguments job(const std::string& command, const Arguments& more, const std::string& out = "out",
                int ranks = 2) const {
    const Arguments all = {"launch",
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
                           "--comm-timeout-seconds",
                           "60"};
    return all + layout_ + more;
  }
  Outcome launch(const Arguments& more, const std::string& out = "out",
                 const std::vector<std::pair<std::string, std::string>>& environment = {}) const {
    return run_binary(job("rl", more, out), environment);
  }

  // Dynamic CP with S = 2: samples above 16 tokens run at c = 2.
  Arguments layout_ = {"--dynamic-context-parallel",
                       "--use-dynamic-batch-size",
                       "--calculate-per-token-loss",
                       "--rollout-max-context-len",
                       "32",
                       "--max-tokens-per-gpu",
                       "16"};
};

}  // namespace ringfold
