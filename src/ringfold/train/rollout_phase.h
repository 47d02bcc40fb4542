// The first phase of `ringfold rl`: responses to a batch of prompts, with their rewards, as a data set that training
// reads like a file. Prompts are dealt to the ranks; afterwards every rank holds all responses.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ringfold/data/sample.h"
#include "ringfold/models/qwen3/model.h"
#include "ringfold/rollout/reward.h"
#include "ringfold/train/session.h"

namespace ringfold {

struct Rollout {
  Dataset data;  // a group's responses one after the other; rewards, groups, rollout log-probs, truncated
  int64_t prompts = 0;
  int64_t responses = 0;
  int64_t dropped_groups = 0;
  double reward_mean = 0, reward_std = 0, response_length_mean = 0, truncated_ratio = 0;
  double generate_ms = 0, reward_ms = 0;
};

// The reward of the settings. UsageError for --rm-type numeric without a tokenizer, program without --rm-program, ...
std::unique_ptr<RewardModel> make_reward(const RunSettings& settings, std::shared_ptr<const Tokenizer> tokenizer);

// `prompts`: positions in `data`, whose samples are prompts (all before the response) with a reference response.
// `rollout` is 1-based and makes its random numbers differ from those of the others. Collective over the lane.
Rollout make_rollout(Session& session, const DenseModel& model, RewardModel& reward, const Dataset& data,
                     const std::vector<int64_t>& prompts, const std::vector<int64_t>& given_lengths, int64_t rollout);

// What --rollout-lengths-file says; empty without. DataError for a broken file, UsageError for flags that have no use
// beside it.
std::vector<int64_t> given_lengths(const RunSettings& settings);
// DataError for a prompt that leaves no room for a response; it names the flag that binds.
void check_prompts(const Topology& topology, const Dataset& data);

}  // namespace ringfold
