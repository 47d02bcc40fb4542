// Decoding on a GPU: attention over pages and drawing against fp64 on the CPU; the decoder and the sampler against the
// model's own forward pass, with sequences that end, leave their pages to others and cross page borders.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "ringfold/base/error.h"
#include "ringfold/kernels/decode.h"
#include "ringfold/models/qwen3/fused_layer.h"
#include "ringfold/rollout/paged_decoder.h"
#include "ringfold/rollout/sampler.h"
#include "ringfold/train/optimizer.h"

namespace ringfold {
namespace {

const at::Device kGpu(at::kCUDA, 0);

at::Tensor wide(const at::Tensor& x) {
  return x.detach().to(at::Device(at::kCPU), at::kDouble);
}

double relative(const at::Tensor& got, const at::Tensor& want) {
  return (wide(got) - wide(want)).norm().item<double>() / wide(want).norm().item<double>();
}

at::Tensor on_gpu(const std::vector<int64_t>& values) {
  return at::tensor(values).to(kGpu);
}

TEST(PagedAttention, equals_plain_attention_on_any_lengths) {
  const std::vector<int64_t> lengths = {1, 255, 256, 257, 1000, 3, 0};  // the last row is empty
  const auto rows = static_cast<int64_t>(lengths.size());
  constexpr int64_t kMost = 5;
  for (const HeadShape& s : std::vector<HeadShape>{{4, 2, 64}, {16, 8, 128}, {32, 8, 128}, {3, 1, 256}, {8, 1, 64}}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(testing::Message() << s.heads << " heads of " << s.head_dim << ", " << at::toString(type));
      const auto options = at::TensorOptions(type).device(kGpu);
      // Whatever no sequence owns is poison.
      const std::vector<int64_t> sizes = {40, s.kv_heads, fused::kPageTokens, s.head_dim};
      const double nan = std::numeric_limits<double>::quiet_NaN();
      const fused::Pages pages{at::full(sizes, nan, options), at::full(sizes, nan, options)};
      const at::Tensor q = at::randn({rows, s.heads, s.head_dim}, options);
      std::vector<int32_t> order(40);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937(3));
      std::vector<int64_t> begin = {0}, sequence;
      at::Tensor table = at::zeros({rows, kMost}, at::kInt), want = at::zeros(q.sizes(), at::kDouble);
      size_t next = 0;
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t length = lengths[static_cast<size_t>(row)], slot = rows - 1 - row;
        sequence.push_back(slot);
        begin.push_back(begin.back() + (length + fused::kPageTokens - 1) / fused::kPageTokens);
        if (length == 0) continue;
        const at::Tensor k = at::randn({length, s.kv_heads, s.head_dim}, options), v = at::randn_like(k);
        for (int64_t first = 0, chunk = 0; first < length; first += fused::kPageTokens, ++chunk) {
          const int64_t count = std::min(fused::kPageTokens, length - first), page = order[next++];
          table[slot][chunk] = page;
          pages.k_pgtd[page].slice(1, 0, count).copy_(k.slice(0, first, first + count).transpose(0, 1));
          pages.v_pgtd[page].slice(1, 0, count).copy_(v.slice(0, first, first + count).transpose(0, 1));
        }
        const auto grouped = [&](const at::Tensor& x) {
          return wide(x).repeat_interleave(s.heads / s.kv_heads, 1).transpose(0, 1);  // (h, s, d)
        };
        const at::Tensor score = at::matmul(grouped(k), wide(q[row]).unsqueeze(2)).squeeze(2) / std::sqrt(s.head_dim);
        want[row].copy_(at::matmul(at::softmax(score, 1).unsqueeze(1), grouped(v)).squeeze(1));
      }
      const fused::PageWork work{on_gpu(lengths), on_gpu(sequence), on_gpu(begin), table.to(kGpu)};
      const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
      const at::Tensor got = fused::paged_attention(q, pages, work, scale);
      EXPECT_LE(relative(got, want), type == at::kFloat ? 1e-5 : 5e-3);
      EXPECT_TRUE(at::equal(wide(got[rows - 1]), want[rows - 1])) << "an empty row gives zeros";
      // A row alone gives the same bits.
      const at::Tensor alone =
          fused::paged_attention(q.slice(0, 4, 5).contiguous(), pages,
                                 {on_gpu({lengths[4]}), on_gpu({sequence[4]}), on_gpu({0, 4}), work.page_table}, scale);
      EXPECT_TRUE(at::equal(alone[0], got[4]));
    }
  }
}

TEST(Draw, follows_the_cumulative_distribution) {
  for (const int64_t vocabulary : {1, 37, 4096, 4097, 151936}) {
    SCOPED_TRACE(vocabulary);
    const int64_t rows = 64;
    at::Tensor logits = at::randn({rows, vocabulary}, at::TensorOptions(at::kFloat).device(kGpu)) * 3;
    if (vocabulary > 100) {
      logits.slice(1, vocabulary - 50).fill_(-INFINITY);
      logits.slice(1, 0, 20).fill_(-INFINITY);
    }
    std::vector<double> uniform(static_cast<size_t>(rows));
    std::mt19937_64 random(5);
    for (double& u : uniform) u = static_cast<double>(random() >> 11) / 9007199254740992.0;
    uniform[0] = 0;
    uniform[1] = 1 - 1e-16;
    const double temperature = 0.8;
    const at::Tensor drawn = fused::draw(logits, at::tensor(uniform, at::kDouble).to(kGpu), temperature).cpu();
    const at::Tensor log_p = at::log_softmax(wide(logits) / temperature, 1), cumulative = log_p.exp().cumsum(1);
    for (int64_t row = 0; row < rows; ++row) {
      const auto token = static_cast<int64_t>(drawn[0][row].item<double>());
      ASSERT_GE(token, 0);
      ASSERT_LT(token, vocabulary);
      const double u = uniform[static_cast<size_t>(row)], through = cumulative[row][token].item<double>();
      const double own = log_p[row][token].exp().item<double>();
      EXPECT_GT(own, 0);
      EXPECT_GE(through, u - 1e-5);
      EXPECT_LE(through - own, u + 1e-5);
      EXPECT_NEAR(drawn[1][row].item<double>(), log_p[row][token].item<double>(), 1e-5);
    }
    const at::Tensor alone =
        fused::draw(logits.slice(0, 7, 8).contiguous(),
                    at::tensor(std::vector<double>{uniform[7]}, at::kDouble).to(kGpu), temperature);
    EXPECT_TRUE(at::equal(alone.cpu().select(1, 0), drawn.select(1, 7)));
  }
}

ModelConfig small_config(bool qk_norm) {
  ModelConfig config;
  config.architecture = qk_norm ? Architecture::kQwen3 : Architecture::kLlama;
  config.vocab_size = 500;
  config.hidden_size = 128;
  config.intermediate_size = 256;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 64;
  config.initializer_range = 0.1;
  config.tie_word_embeddings = qk_norm;
  config.qk_norm = qk_norm;
  config.json = "{}";
  return config;
}

// Parameters side by side, as in training.
struct SmallModel {
  SmallModel(bool qk_norm, at::ScalarType type)
      : model(small_config(qk_norm), type, uint64_t{3}, kGpu), flat(model.parameters()) {}
  DenseModel model;
  FlatParameters flat;
};

// log softmax(logits / temperature) at every position of a sequence, through the training model; fp64 on the CPU.
at::Tensor model_log_probs(const DenseModel& model, const std::vector<int64_t>& tokens, double temperature = 1) {
  const c10::NoGradGuard no_grad;
  auto context = std::make_shared<CpContext>(
      CpGroup{}, PackLayout(std::vector<int64_t>{static_cast<int64_t>(tokens.size())}, 1, 0));
  const bool half = model.embedding().scalar_type() == at::kBFloat16;
  context->kernel = half ? AttentionKernel::kFlash : AttentionKernel::kReference;
  const at::Tensor ids = at::tensor(tokens).to(model.embedding().device());
  const at::Tensor hidden = model.forward(ids, context, half ? Recompute::kSelective : Recompute::kNone);
  return at::log_softmax(at::matmul(wide(hidden), wide(model.head_weight()).t()) / temperature, 1);
}

std::vector<int64_t> make_prompt(int64_t length, int64_t seed) {
  std::vector<int64_t> tokens;
  for (int64_t t = 0; t < length; ++t) tokens.push_back((t * t * 7 + t * 3 + seed * 131) % 500);
  return tokens;
}

// Feeds a decoder and keeps the tokens of its sequences.
struct Driver {
  explicit Driver(const DenseModel& model, bool eager) : decoder(model, {8, 700, eager}) {}

  void add(int64_t length, int64_t seed, int64_t copies) {
    const at::Tensor logits = decoder.add_prompt(make_prompt(length, seed), copies, length + 100);
    last.push_back(wide(at::log_softmax(wide(logits), 0)));
    for (int64_t copy = 0; copy < copies; ++copy) tokens.push_back(make_prompt(length, seed));
  }
  at::Tensor step() {
    std::vector<int64_t> ids;
    for (auto& sequence : tokens) {
      ids.push_back(static_cast<int64_t>(sequence.size() * 17 + ids.size() * 5) % 500);
      sequence.push_back(ids.back());
    }
    return at::log_softmax(wide(decoder.step(ids)), 1);
  }
  void keep(const std::vector<int64_t>& rows) {
    std::vector<std::vector<int64_t>> kept;
    for (const int64_t row : rows) kept.push_back(tokens[static_cast<size_t>(row)]);
    tokens = std::move(kept);
    decoder.keep(rows);
  }

  PagedDecoder decoder;
  std::vector<std::vector<int64_t>> tokens;
  std::vector<at::Tensor> last;  // log-probs after each prompt
};

// Log-probs of every sequence after every step, beside the model's: (steps and sequences, v) each.
std::pair<at::Tensor, at::Tensor> decode(const DenseModel& model, bool eager) {
  Driver driver(model, eager);
  std::vector<at::Tensor> got, want;
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const at::Tensor log_probs = driver.step();
      if (i % 5 != 0 && i + 1 < count) continue;
      for (size_t row = 0; row < driver.tokens.size(); ++row) {
        got.push_back(log_probs[static_cast<int64_t>(row)]);
        want.push_back(model_log_probs(model, driver.tokens[row])[-1]);
      }
    }
  };
  driver.add(5, 0, 2);
  driver.add(250, 1, 1);  // crosses a page border soon
  driver.add(511, 2, 2);
  steps(12);
  driver.keep({1, 2, 4});
  steps(3);
  driver.add(300, 3, 3);  // into the pages that were left
  steps(9);
  driver.keep({5});
  steps(4);
  const std::vector<std::pair<int64_t, int64_t>> prompts = {{5, 0}, {250, 1}, {511, 2}, {300, 3}};
  for (size_t p = 0; p < prompts.size(); ++p) {
    got.push_back(driver.last[p]);
    want.push_back(model_log_probs(model, make_prompt(prompts[p].first, prompts[p].second))[-1]);
  }
  return {at::stack(got), at::stack(want)};
}

TEST(PagedDecoder, log_probs_are_those_of_the_model_in_fp32) {
  for (const bool qk_norm : {true, false}) {
    const SmallModel small(qk_norm, at::kFloat);
    ASSERT_TRUE(has_fused_layers(small.model));
    for (const bool eager : {true, false}) {
      SCOPED_TRACE(eager ? "eager" : "recorded");
      const auto [got, want] = decode(small.model, eager);
      EXPECT_LE((got - want).abs().max().item<double>(), 1e-4);
    }
  }
}

TEST(PagedDecoder, is_as_near_to_fp32_as_the_models_forward_in_bf16) {
  SmallModel small(true, at::kBFloat16), exact(true, at::kFloat);
  const c10::NoGradGuard no_grad;
  exact.flat.values().copy_(small.flat.values());
  const at::Tensor truth = decode(exact.model, true).second;
  const auto [got, want] = decode(small.model, false);
  const double own = relative(got, truth), forward = relative(want, truth);
  EXPECT_LE(forward, 2e-2);
  EXPECT_LE(own, 1.5 * forward);
}

TEST(SamplerOnGpu, log_probs_are_those_of_the_model_that_trains) {
  const SmallModel small(true, at::kFloat);
  SamplingSettings settings;
  settings.temperature = 0.9;
  settings.max_response_tokens = 40;
  settings.max_sequences = 5;  // fewer than there are: prompts come in as others end
  std::vector<SamplingPrompt> prompts;
  for (int64_t p = 0; p < 6; ++p) {
    prompts.push_back({make_prompt(3 + 90 * p, p), static_cast<uint64_t>(p), 2, {5 + 7 * p, 50 - 8 * p}});
  }
  for (const bool eager : {false, true}) {
    settings.eager = eager;
    const auto all = sample_responses(small.model, prompts, settings);
    for (size_t p = 0; p < prompts.size(); ++p) {
      for (size_t copy = 0; copy < 2; ++copy) {
        const SampledResponse& response = all[p][copy];
        ASSERT_EQ(response.tokens.size(), static_cast<size_t>(std::min<int64_t>(40, prompts[p].response_tokens[copy])));
        std::vector<int64_t> tokens = prompts[p].tokens;
        tokens.insert(tokens.end(), response.tokens.begin(), response.tokens.end());
        const at::Tensor expected = model_log_probs(small.model, tokens, settings.temperature);
        for (size_t t = 0; t < response.tokens.size(); ++t) {
          const auto row = static_cast<int64_t>(prompts[p].tokens.size() + t) - 1;
          EXPECT_NEAR(response.log_probs[t], expected[row][response.tokens[t]].item<double>(), 1e-4);
        }
      }
    }
  }
}

TEST(SamplerOnGpu, a_cache_that_no_memory_holds_is_an_error) {
  const SmallModel small(true, at::kFloat);
  SamplingSettings settings;
  settings.max_response_tokens = int64_t{1} << 21;
  settings.max_sequences = 64;
  try {
    sample_responses(small.model, {{make_prompt(3, 0), 0, 64}}, settings);
    FAIL();
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("[rollout] cache of keys and values: got too little memory"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace ringfold
