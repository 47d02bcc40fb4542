// The sampler: its log-probs are those of the model that trains, whatever runs beside a sequence; draws follow their
// law.
#include "ringfold/rollout/sampler.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "ringfold/rollout/padded_decoder.h"

namespace ringfold {
namespace {

ModelConfig tiny_config(bool tied) {
  ModelConfig config;
  config.vocab_size = 37;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.initializer_range = 0.4;
  config.tie_word_embeddings = tied;
  config.qk_norm = tied;
  config.attention_bias = !tied;
  config.json = "{}";
  return config;
}

std::vector<int64_t> make_prompt(int64_t length, int64_t seed) {
  std::vector<int64_t> tokens;
  for (int64_t t = 0; t < length; ++t) tokens.push_back((t * 7 + seed * 13 + 3) % 37);
  return tokens;
}

// log softmax(logits / temperature) of every position of a whole sequence, through the training model: (t, v).
at::Tensor model_log_probs(const DenseModel& model, const std::vector<int64_t>& tokens, double temperature) {
  const c10::InferenceMode no_grad;
  auto context = std::make_shared<CpContext>(
      CpGroup{}, PackLayout(std::vector<int64_t>{static_cast<int64_t>(tokens.size())}, 1, 0));
  context->kernel = AttentionKernel::kReference;
  const at::Tensor hidden = model.forward(at::tensor(tokens), context, Recompute::kNone);
  return at::log_softmax(at::matmul(hidden, model.head_weight().t()) / temperature, 1);
}

TEST(Sampler, log_probs_are_those_of_the_model_that_trains) {
  for (const bool tied : {true, false}) {
    const DenseModel model(tiny_config(tied), at::kDouble, uint64_t{3});
    SamplingSettings settings;
    settings.temperature = 0.8;
    settings.max_response_tokens = 23;
    settings.stop_token_ids = {5, 11};
    settings.max_sequences = 5;  // fewer than there are: prompts come in as others end
    std::vector<SamplingPrompt> prompts;
    for (int64_t p = 0; p < 6; ++p) prompts.push_back({make_prompt(1 + 4 * p, p), static_cast<uint64_t>(p), 1 + p % 3});
    const auto all = sample_responses(model, prompts, settings);
    int truncated = 0, stopped = 0;
    for (size_t p = 0; p < prompts.size(); ++p) {
      ASSERT_EQ(all[p].size(), static_cast<size_t>(prompts[p].responses));
      for (const SampledResponse& response : all[p]) {
        std::vector<int64_t> tokens = prompts[p].tokens;
        tokens.insert(tokens.end(), response.tokens.begin(), response.tokens.end());
        const at::Tensor expected = model_log_probs(model, tokens, settings.temperature);
        ASSERT_EQ(response.log_probs.size(), response.tokens.size());
        for (size_t t = 0; t < response.tokens.size(); ++t) {
          const auto row = static_cast<int64_t>(prompts[p].tokens.size() + t) - 1;
          EXPECT_NEAR(response.log_probs[t], expected[row][response.tokens[t]].item<double>(), 1e-10);
        }
        const int64_t last = response.tokens.back();
        EXPECT_EQ(response.truncated, last != 5 && last != 11);
        EXPECT_LE(response.tokens.size(), 23u);
        if (response.truncated) EXPECT_EQ(response.tokens.size(), 23u);
        for (size_t t = 0; t + 1 < response.tokens.size(); ++t)
          EXPECT_FALSE(response.tokens[t] == 5 || response.tokens[t] == 11);
        ++(response.truncated ? truncated : stopped);
      }
    }
    EXPECT_GT(truncated + stopped, 0);
    EXPECT_GT(stopped, 0);
  }
}

TEST(Sampler, draws_do_not_depend_on_what_runs_beside_them) {
  const DenseModel model(tiny_config(true), at::kDouble, uint64_t{3});
  SamplingSettings settings;
  settings.max_response_tokens = 12;
  std::vector<SamplingPrompt> prompts;
  for (int64_t p = 0; p < 4; ++p) prompts.push_back({make_prompt(2 + 3 * p, p), static_cast<uint64_t>(p), 2});
  const auto together = sample_responses(model, prompts, settings);
  settings.max_sequences = 1;
  for (size_t p = 0; p < prompts.size(); ++p) {
    const auto alone = sample_responses(model, {prompts[p]}, settings);
    for (size_t c = 0; c < 2; ++c) EXPECT_EQ(alone[0][c].tokens, together[p][c].tokens);
  }
  EXPECT_NE(together[0][0].tokens, together[0][1].tokens);
  settings.seed = 1;
  EXPECT_NE(sample_responses(model, prompts, settings)[0][0].tokens, together[0][0].tokens);
}

TEST(Sampler, follows_the_distribution_and_its_truncations) {
  const DenseModel model(tiny_config(true), at::kDouble, uint64_t{3});
  const std::vector<int64_t> prompt = make_prompt(4, 1);
  const at::Tensor p = model_log_probs(model, prompt, 1.5)[3].exp();
  SamplingSettings settings;
  settings.temperature = 1.5;
  settings.max_response_tokens = 1;
  settings.max_sequences = 4000;
  const auto shares = [&] {
    std::map<int64_t, double> counts;
    const auto drawn = sample_responses(model, {{prompt, 0, 4000}}, settings);
    for (const SampledResponse& response : drawn[0]) {
      counts[response.tokens[0]] += 1 / 4000.0;
    }
    return counts;
  };
  auto all = shares();
  for (int64_t token = 0; token < 37; ++token) {
    EXPECT_NEAR(all[token], p[token].item<double>(), 5 * std::sqrt(p[token].item<double>() / 4000) + 1e-3) << token;
  }
  const at::Tensor order = p.argsort(0, /*descending=*/true);
  settings.top_k = 2;
  const auto two = shares();
  const double first = p[order[0]].item<double>(), second = p[order[1]].item<double>();
  EXPECT_THAT(two, ::testing::SizeIs(2));
  EXPECT_NEAR(two.at(order[0].item<int64_t>()), first / (first + second), 0.05);
  settings.top_k = 0;
  settings.top_p = first * 1.01;  // the likeliest does not reach it alone
  EXPECT_THAT(shares(), ::testing::SizeIs(2));
  settings.top_p = 1e-6;
  EXPECT_THAT(shares(), ::testing::SizeIs(1));
}

TEST(Sampler, the_context_limit_cuts_responses) {
  const DenseModel model(tiny_config(true), at::kDouble, uint64_t{3});
  SamplingSettings settings;
  settings.max_response_tokens = 100;
  settings.max_context_tokens = 16;
  const auto all = sample_responses(model, {{make_prompt(10, 0), 0, 1}, {make_prompt(15, 1), 1, 1}}, settings);
  EXPECT_EQ(all[0][0].tokens.size(), 6u);
  EXPECT_EQ(all[1][0].tokens.size(), 1u);
  EXPECT_TRUE(all[1][0].truncated);
}

TEST(Sampler, responses_end_at_given_lengths_whatever_is_drawn) {
  const DenseModel model(tiny_config(true), at::kDouble, uint64_t{3});
  SamplingSettings settings;
  settings.max_response_tokens = 30;
  settings.max_sequences = 3;
  const std::vector<std::vector<int64_t>> lengths = {{7, 1}, {30, 31}, {4, 12}};
  std::vector<SamplingPrompt> prompts;
  for (size_t p = 0; p < 3; ++p) prompts.push_back({make_prompt(4, static_cast<int64_t>(p)), p, 2, lengths[p]});
  const auto given = sample_responses(model, prompts, settings);
  for (SamplingPrompt& prompt : prompts) prompt.response_tokens.clear();
  const auto free = sample_responses(model, prompts, settings);  // without stop tokens: all run to the limit
  for (size_t p = 0; p < 3; ++p) {
    for (size_t c = 0; c < 2; ++c) {
      const auto count = static_cast<size_t>(std::min<int64_t>(lengths[p][c], 30));
      ASSERT_EQ(given[p][c].tokens.size(), count);
      EXPECT_EQ(given[p][c].truncated, lengths[p][c] > 30);
      EXPECT_EQ(free[p][c].tokens.size(), 30u);
      EXPECT_TRUE(free[p][c].truncated);
      EXPECT_TRUE(std::equal(given[p][c].tokens.begin(), given[p][c].tokens.end(), free[p][c].tokens.begin()));
    }
  }
}

TEST(PaddedDecoder, keeps_the_sequences_it_is_told_to) {
  const DenseModel model(tiny_config(false), at::kDouble, uint64_t{3});
  PaddedDecoder decoder(model);
  decoder.add_prompt(make_prompt(3, 0), 2, 5);
  decoder.add_prompt(make_prompt(9, 1), 2, 11);
  EXPECT_EQ(decoder.sequences(), 4);
  decoder.step({1, 2, 3, 4});
  decoder.keep({1, 3});
  const at::Tensor logits = decoder.step({6, 7});
  std::vector<int64_t> first = make_prompt(3, 0), second = make_prompt(9, 1);
  first.insert(first.end(), {2, 6});
  second.insert(second.end(), {4, 7});
  EXPECT_TRUE(at::allclose(at::log_softmax(logits[0], 0), model_log_probs(model, first, 1)[4], 1e-10, 1e-10));
  EXPECT_TRUE(at::allclose(at::log_softmax(logits[1], 0), model_log_probs(model, second, 1)[10], 1e-10, 1e-10));
}

}  // namespace
}  // namespace ringfold
