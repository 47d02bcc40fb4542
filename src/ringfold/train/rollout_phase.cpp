#include "ringfold/train/rollout_phase.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>

#include "ringfold/base/error.h"
#include "ringfold/data/lengths.h"
#include "ringfold/mesh/failure.h"
#include "ringfold/rollout/sampler.h"
#include "ringfold/train/setup.h"

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// A response with its reward, on every rank.
struct Judged {
  SampledResponse response;
  double reward = 0;
};

SamplingSettings sampling_settings(const Session& session, int64_t rollout) {
  const RunSettings& settings = session.settings;
  SamplingSettings sampling;
  sampling.temperature = settings.temperature;
  sampling.top_k = settings.rollout_top_k;
  sampling.top_p = settings.rollout_top_p;
  sampling.max_response_tokens = settings.rollout_max_response_len;
  sampling.max_context_tokens = longest_accepted(session.topology, /*scored=*/true).tokens;
  sampling.stop_token_ids = settings.rollout_stop_token_ids;
  sampling.max_sequences = settings.rollout_max_sequences;
  sampling.eager = settings.rollout_enforce_eager;
  sampling.seed = settings.seed * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(rollout);
  // The ranks wait for the longest response, so that each token is a sign of life.
  sampling.on_token = [&session, rollout] { session.enter("sampling", rollout); };
  return sampling;
}

// The hints of training's out-of-memory would not help here.
std::vector<std::vector<SampledResponse>> sample_with_memory_check(const Session& session, const DenseModel& model,
                                                                   const std::vector<SamplingPrompt>& prompts,
                                                                   int64_t rollout) {
  try {
    return sample_responses(model, prompts, sampling_settings(session, rollout));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {
    if (!is_out_of_memory(failure)) throw;
    throw RunError(fmt::format(
        "[rollout] out of memory while sampling: rank {}, rollout {}, {} responses at a time. Hint: a smaller "
        "--rollout-max-sequences or --rollout-max-response-len, or --offload-train",
        session.env.rank.value(), rollout, session.settings.rollout_max_sequences));
  }
}

std::vector<int64_t> prompt_of(const Sample& sample) {
  return {sample.tokens.begin(), sample.tokens.begin() + sample.response_begin()};
}

// Of the responses to prompt `prompt` of rollout `number`: the file's lengths in turn, from the start again after the
// last.
std::vector<int64_t> lengths_of_group(const RunSettings& settings, const std::vector<int64_t>& lengths, int64_t number,
                                      size_t prompt) {
  std::vector<int64_t> group;
  if (lengths.empty()) return group;
  const int64_t first =
      ((number - 1) * settings.rollout_batch_size + static_cast<int64_t>(prompt)) * settings.n_samples_per_prompt;
  for (int64_t copy = 0; copy < settings.n_samples_per_prompt; ++copy) {
    group.push_back(lengths[static_cast<size_t>(first + copy) % lengths.size()]);
  }
  return group;
}

// The prompts of a rank: every D-th one, so that long and short ones mix.
bool is_mine(const Session& session, size_t prompt) {
  return static_cast<int>(prompt % static_cast<size_t>(session.reductions->size())) == session.lane_rank.value();
}

// The ranks wait for the slowest judge, so that each answer is a sign of life.
std::vector<double> rewards_of(const Session& session, RewardModel& reward, const Dataset& data, int64_t rollout,
                               const std::vector<int64_t>& prompts, const std::vector<size_t>& mine,
                               const std::vector<std::vector<SampledResponse>>& responses) {
  std::vector<double> rewards;
  for (size_t i = 0; i < mine.size(); ++i) {
    const Sample& sample = data.samples[static_cast<size_t>(prompts[mine[i]])];
    const std::vector<int64_t> prompt = prompt_of(sample);
    const std::span<const int64_t> answer(sample.tokens.data() + sample.response_begin(),
                                          static_cast<size_t>(sample.response_length));
    for (const SampledResponse& response : responses[i]) {
      session.enter("judging", rollout);
      rewards.push_back(reward.score({sample.id.value(), prompt, response.tokens, answer, response.truncated}));
    }
  }
  return rewards;
}

// A judge is often broken on every rank alike: the first of those ranks tells.
void require_judged(Session& session, const std::exception_ptr& failure) {
  const auto failed = session.collectives().all_gather_double(failure ? 1 : 0, "judges");
  const auto first = std::find(failed.begin(), failed.end(), 1);
  if (first == failed.end()) return;
  if (first - failed.begin() == session.lane_rank.value()) std::rethrow_exception(failure);
  throw ReportedElsewhere(ExitCode::kFailure);
}

// Every rank's responses on every rank, by prompt and copy. Each is written by one rank and added to zeros: exact.
std::vector<Judged> share(Session& session, size_t prompts, const std::vector<size_t>& mine,
                          const std::vector<std::vector<SampledResponse>>& responses,
                          const std::vector<double>& rewards) {
  const auto copies = static_cast<size_t>(session.settings.n_samples_per_prompt);
  const auto count = static_cast<int64_t>(prompts * copies);
  at::Tensor heads = at::zeros({count, 3}, at::kDouble);  // length, truncated, reward
  auto head = heads.accessor<double, 2>();
  for (size_t i = 0; i < mine.size(); ++i) {
    for (size_t copy = 0; copy < copies; ++copy) {
      const auto row = static_cast<int64_t>(mine[i] * copies + copy);
      head[row][0] = static_cast<double>(responses[i][copy].tokens.size());
      head[row][1] = responses[i][copy].truncated ? 1 : 0;
      head[row][2] = rewards[i * copies + copy];
    }
  }
  session.collectives().all_reduce_sum(heads, "lengths and rewards of responses");
  const auto all = heads.accessor<double, 2>();
  std::vector<int64_t> begin = {0};
  for (int64_t row = 0; row < count; ++row) begin.push_back(begin.back() + static_cast<int64_t>(all[row][0]));
  at::Tensor bodies = at::zeros({2, begin.back()}, at::kDouble);  // token ids are exact in fp64
  auto body = bodies.accessor<double, 2>();
  for (size_t i = 0; i < mine.size(); ++i) {
    for (size_t copy = 0; copy < copies; ++copy) {
      const SampledResponse& response = responses[i][copy];
      const int64_t first = begin[mine[i] * copies + copy];
      for (size_t t = 0; t < response.tokens.size(); ++t) {
        body[0][first + static_cast<int64_t>(t)] = static_cast<double>(response.tokens[t]);
        body[1][first + static_cast<int64_t>(t)] = response.log_probs[t];
      }
    }
  }
  session.collectives().all_reduce_sum(bodies, "tokens of responses");
  const auto values = bodies.accessor<double, 2>();
  std::vector<Judged> judged(static_cast<size_t>(count));
  for (size_t row = 0; row < judged.size(); ++row) {
    for (int64_t column = begin[row]; column < begin[row + 1]; ++column) {
      judged[row].response.tokens.push_back(static_cast<int64_t>(values[0][column]));
      judged[row].response.log_probs.push_back(values[1][column]);
    }
    judged[row].response.truncated = all[static_cast<int64_t>(row)][1] > 0;
    judged[row].reward = all[static_cast<int64_t>(row)][2];
  }
  return judged;
}

Sample training_sample(const Sample& prompt, size_t group, Judged& judged, int64_t id) {
  Sample sample;
  sample.id = SampleId(id);
  sample.line = prompt.line;
  sample.tokens = prompt_of(prompt);
  const std::vector<int64_t>& response = judged.response.tokens;
  sample.tokens.insert(sample.tokens.end(), response.begin(), response.end());
  sample.response_length = static_cast<int64_t>(response.size());
  sample.loss_mask.assign(sample.tokens.size(), 0);
  std::fill(sample.loss_mask.end() - sample.response_length, sample.loss_mask.end(), uint8_t{1});
  sample.reward = judged.reward;
  sample.group = std::to_string(group);
  sample.truncated = judged.response.truncated;
  sample.rollout_log_probs = std::move(judged.response.log_probs);
  return sample;
}

void add_figures(const std::vector<Judged>& judged, Rollout& rollout) {
  const auto count = static_cast<double>(judged.size());
  for (const Judged& one : judged) {
    rollout.reward_mean += one.reward / count;
    rollout.response_length_mean += static_cast<double>(one.response.tokens.size()) / count;
    rollout.truncated_ratio += one.response.truncated ? 1 / count : 0;
  }
  double squares = 0;
  for (const Judged& one : judged) squares += std::pow(one.reward - rollout.reward_mean, 2);
  rollout.reward_std = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
}

}  // namespace

std::unique_ptr<RewardModel> make_reward(const RunSettings& settings, std::shared_ptr<const Tokenizer> tokenizer) {
  if (settings.rm_type == "program") {
    if (settings.rm_program.empty()) {
      throw UsageError("[settings] --rm-type program needs --rm-program. Hint: --rm-program 'python3 judge.py'");
    }
    // Its end is told before the other ranks give this one up.
    return make_program_reward(settings.rm_program, std::move(tokenizer), 0.8 * settings.comm_timeout_seconds);
  }
  if (!settings.rm_program.empty()) {
    throw UsageError(fmt::format("[settings] --rm-program '{}' has no use with --rm-type {}. Hint: --rm-type program",
                                 settings.rm_program, settings.rm_type));
  }
  if (settings.rm_type == "exact") return make_exact_reward(settings.rollout_stop_token_ids);
  if (tokenizer == nullptr) {
    throw UsageError("[settings] --rm-type numeric reads texts and needs --tokenizer. Hint: --tokenizer DIR");
  }
  return make_numeric_reward(std::move(tokenizer));
}

std::vector<int64_t> given_lengths(const RunSettings& settings) {
  if (settings.rollout_lengths_file.empty()) return {};
  const bool stops = !settings.rollout_stop_token_ids.empty();
  if (stops || settings.dynamic_sampling_filter) {
    // Responses end where the file says, and their rewards say nothing.
    throw UsageError(
        fmt::format("[settings] --rollout-lengths-file: got it beside {}, expected one of the two. Hint: drop one",
                    stops ? "--rollout-stop-token-ids" : "--dynamic-sampling-filter"));
  }
  return load_lengths(settings.rollout_lengths_file);
}

void check_prompts(const Topology& topology, const Dataset& data) {
  const SampleLimit limit = longest_accepted(topology, /*scored=*/true);
  for (const Sample& sample : data.samples) {
    const int64_t prompt = sample.response_begin();
    if (limit.tokens == 0 || prompt < limit.tokens) continue;
    throw DataError(fmt::format(
        "[data] {}:{} (sample {}): prompt leaves no room for a response: got {} tokens, expected fewer than {} ({}). "
        "Hint: leave it out, or raise the limit",
        data.file, sample.line, sample.id.value(), prompt, limit.tokens, limit.flags));
  }
}

Rollout make_rollout(Session& session, const DenseModel& model, RewardModel& reward, const Dataset& data,
                     const std::vector<int64_t>& prompts, const std::vector<int64_t>& lengths, int64_t number) {
  const auto copies = session.settings.n_samples_per_prompt;
  const auto begin = Clock::now();
  std::vector<SamplingPrompt> asked;
  std::vector<size_t> mine;
  for (size_t p = 0; p < prompts.size(); ++p) {
    if (!is_mine(session, p)) continue;
    mine.push_back(p);
    asked.push_back({prompt_of(data.samples[static_cast<size_t>(prompts[p])]), p, copies,
                     lengths_of_group(session.settings, lengths, number, p)});
  }
  const auto responses = sample_with_memory_check(session, model, asked, number);
  session.collectives().barrier("end of sampling");
  Rollout rollout;
  rollout.generate_ms = ms_since(begin);
  const auto sampled = Clock::now();
  std::vector<double> rewards;
  std::exception_ptr failure;
  try {
    rewards = rewards_of(session, reward, data, number, prompts, mine, responses);
  } catch (const RunError&) {
    failure = std::current_exception();
  }
  require_judged(session, failure);
  std::vector<Judged> judged = share(session, prompts.size(), mine, responses, rewards);
  rollout.reward_ms = ms_since(sampled);

  rollout.prompts = static_cast<int64_t>(prompts.size());
  rollout.responses = static_cast<int64_t>(judged.size());
  add_figures(judged, rollout);
  rollout.data.file = fmt::format("rollout {}", number);
  for (size_t p = 0; p < prompts.size(); ++p) {
    const auto first = judged.begin() + static_cast<int64_t>(p) * copies;
    const bool flat =
        std::all_of(first, first + copies, [&](const Judged& one) { return one.reward == first->reward; });
    if (flat && session.settings.dynamic_sampling_filter) {
      ++rollout.dropped_groups;
      continue;
    }
    for (auto one = first; one != first + copies; ++one) {
      const auto id = static_cast<int64_t>(rollout.data.samples.size());
      rollout.data.samples.push_back(training_sample(data.samples[static_cast<size_t>(prompts[p])], p, *one, id));
    }
  }
  rollout.data.lines = static_cast<int64_t>(rollout.data.samples.size());
  return rollout;
}

}  // namespace ringfold
