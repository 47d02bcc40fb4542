// Rewards of sampled responses: from a rule that compares with a reference answer, or from a program of the user's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ringfold/data/tokenizer.h"

namespace ringfold {

struct RewardRequest {
  int64_t prompt_id = 0;
  std::span<const int64_t> prompt, response, answer;  // answer: the reference response
  bool truncated = false;
};

class RewardModel {
 public:
  virtual ~RewardModel() = default;
  // A finite number.
  virtual double score(const RewardRequest& request) = 0;
};

// "exact": 1 when the response is the answer, stop tokens at their ends left out, else 0.
// "numeric": 1 when the last number in the text of the response is the last one of the answer ("1,234.50" is 1234.5),
// else 0. Needs a tokenizer.
std::unique_ptr<RewardModel> make_exact_reward(std::vector<int64_t> stop_token_ids);
std::unique_ptr<RewardModel> make_numeric_reward(std::shared_ptr<const Tokenizer> tokenizer);

// A program started once through the shell. For each request it gets one line on its stdin
//   {"id":7,"prompt_tokens":[..],"response_tokens":[..],"answer_tokens":[..],"truncated":false}
// with "prompt", "response" and "answer" as texts where there is a tokenizer, and answers with one line {"reward":0.5}
// on its stdout, at once (flushed). RunError names the command when it ends, answers with something else or more than
// once, or takes longer than timeout_seconds to read and answer. Runs as a Subprocess (rollout/subprocess.h).
std::unique_ptr<RewardModel> make_program_reward(const std::string& command, std::shared_ptr<const Tokenizer> tokenizer,
                                                 double timeout_seconds);

// The text of sampled ids; those without a token (a vocabulary padded beyond the tokenizer's) are left out.
std::string readable_text(const Tokenizer& tokenizer, std::span<const int64_t> ids);

// The last number written in a text, for numeric rewards; NaN when there is none.
double last_number(const std::string& text);

}  // namespace ringfold
