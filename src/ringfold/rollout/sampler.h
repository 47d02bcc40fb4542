// Responses drawn from the policy, with their log-probs, by continuous batching: a finished sequence makes room for the
// next prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ringfold/models/qwen3/model.h"

namespace ringfold {

struct SamplingSettings {
  double temperature = 1;
  int64_t top_k = 0;  // draw among the k likeliest tokens; 0: all
  double top_p = 1;   // draw among the likeliest tokens that together have this probability
  int64_t max_response_tokens = 256;
  int64_t max_context_tokens = 0;  // prompt and response; 0: no limit
  std::vector<int64_t> stop_token_ids;
  int64_t max_sequences = 64;  // decoded at a time
  bool eager = false;          // on a GPU: start every kernel of a step by itself (decoder.h)
  uint64_t seed = 0;
  std::function<void()> on_token;  // called before each sequence gets its next token; may be empty
};

struct SamplingPrompt {
  std::vector<int64_t> tokens;  // at least one
  uint64_t stream = 0;          // names the prompt: with the seed it fixes the random numbers of its responses
  int64_t responses = 1;        // drawn from it
  // For measurements: each response ends after exactly so many tokens (or at a limit), whatever is drawn. Empty: at a
  // stop token.
  std::vector<int64_t> response_tokens = {};
};

struct SampledResponse {
  std::vector<int64_t> tokens;    // with the stop token
  std::vector<double> log_probs;  // under the temperature, over the whole vocabulary: what training computes
  bool truncated = false;         // ended by a limit, not by a stop token
};

// For each prompt its responses, in order. The draws depend on seed, stream and position alone, never on what runs
// beside it, up to the rounding of the logits. RunError when the cache of one prompt's responses does not fit the
// device's memory.
std::vector<std::vector<SampledResponse>> sample_responses(const DenseModel& model,
                                                           const std::vector<SamplingPrompt>& prompts,
                                                           const SamplingSettings& settings);

}  // namespace ringfold
