// Legend: b sequences, v vocabulary.
#include "ringfold/rollout/sampler.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ringfold/base/error.h"
#include "ringfold/device/device.h"
#include "ringfold/rollout/decoder.h"

namespace ringfold {
namespace {

uint64_t splitmix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

struct Draw {
  at::Tensor token_b;     // int64, on the device
  at::Tensor log_prob_b;  // fp64
};

// One token a row by the inverse of the cumulative distribution at `uniform`.
Draw draw_tokens(const at::Tensor& logits_bv, const std::vector<double>& uniform, const SamplingSettings& settings) {
  const at::Tensor log_p_bv = at::log_softmax(logits_bv.to(at::kDouble) / settings.temperature, 1);
  at::Tensor p_bv = log_p_bv.exp(), order_bv;
  const bool some = settings.top_k > 0 || settings.top_p < 1;
  if (some) {
    std::tie(p_bv, order_bv) = p_bv.sort(1, /*descending=*/true);
    // A token is out when those before it have the probability already; the likeliest always stays.
    const at::Tensor before_bv = p_bv.cumsum(1) - p_bv;
    p_bv = p_bv.masked_fill(before_bv.ge(settings.top_p), 0);
    if (settings.top_k > 0 && settings.top_k < p_bv.size(1)) p_bv.slice(1, settings.top_k).zero_();
  }
  const at::Tensor cumulative_bv = p_bv.cumsum(1);
  const at::Tensor total_b1 = cumulative_bv.slice(1, -1);
  const at::Tensor target_b1 = to_device(uniform, logits_bv.device()).unsqueeze(1) * total_b1;
  // The first entry above the target has a probability above 0.
  at::Tensor place_b1 = at::searchsorted(cumulative_bv.contiguous(), target_b1.contiguous(), false, /*right=*/true);
  place_b1 = place_b1.clamp_max(p_bv.size(1) - 1);
  const at::Tensor token_b1 = some ? order_bv.gather(1, place_b1) : place_b1;
  return {token_b1.squeeze(1), log_p_bv.gather(1, token_b1).squeeze(1)};
}

// One sequence that is being decoded.
struct Active {
  SampledResponse* response;
  uint64_t stream;
  int64_t limit;  // tokens of the response
};

int64_t response_limit(const SamplingSettings& settings, const SamplingPrompt& prompt) {
  if (settings.max_context_tokens == 0) return settings.max_response_tokens;
  return std::min(settings.max_response_tokens,
                  settings.max_context_tokens - static_cast<int64_t>(prompt.tokens.size()));
}

// Appends the drawn tokens; returns the rows that go on.
std::vector<int64_t> take(const Draw& draw, const SamplingSettings& settings, std::vector<Active>& active) {
  const at::Tensor tokens = draw.token_b.cpu(), log_probs = draw.log_prob_b.cpu();
  std::vector<int64_t> rows;
  std::vector<Active> going;
  for (size_t i = 0; i < active.size(); ++i) {
    SampledResponse& response = *active[i].response;
    const int64_t token = tokens.const_data_ptr<int64_t>()[i];
    response.tokens.push_back(token);
    response.log_probs.push_back(log_probs.const_data_ptr<double>()[i]);
    const auto& stops = settings.stop_token_ids;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) continue;
    response.truncated = static_cast<int64_t>(response.tokens.size()) >= active[i].limit;
    if (response.truncated) continue;
    rows.push_back(static_cast<int64_t>(i));
    going.push_back(active[i]);
  }
  active = std::move(going);
  return rows;
}

}  // namespace

std::vector<std::vector<SampledResponse>> sample_responses(const DenseModel& model,
                                                           const std::vector<SamplingPrompt>& prompts,
                                                           const SamplingSettings& settings) {
  std::vector<std::vector<SampledResponse>> all(prompts.size());
  Decoder decoder(model);
  std::vector<Active> active;
  at::Tensor logits_bv;
  for (size_t next = 0; next < prompts.size() || !active.empty();) {
    while (next < prompts.size() && (active.empty() || static_cast<int64_t>(active.size()) + prompts[next].responses <=
                                                           settings.max_sequences)) {
      const SamplingPrompt& prompt = prompts[next];
      std::vector<SampledResponse>& responses = all[next++];
      responses.resize(static_cast<size_t>(prompt.responses));
      const int64_t limit = response_limit(settings, prompt);
      RINGFOLD_ASSERT(limit >= 1, "a prompt leaves room for a response");
      const at::Tensor first_v = decoder.add_prompt(prompt.tokens, prompt.responses);
      const at::Tensor first_bv = first_v.unsqueeze(0).expand({prompt.responses, first_v.size(0)});
      logits_bv = active.empty() ? first_bv : at::cat({logits_bv, first_bv});
      for (size_t copy = 0; copy < responses.size(); ++copy) {
        active.push_back(
            {&responses[copy], splitmix64(splitmix64(settings.seed ^ splitmix64(prompt.stream)) + copy), limit});
      }
    }
    if (settings.on_token) settings.on_token();
    std::vector<double> uniform;
    for (const Active& sequence : active) {
      const uint64_t bits = splitmix64(sequence.stream + sequence.response->tokens.size());
      uniform.push_back(static_cast<double>(bits >> 11) / 9007199254740992.0);
    }
    const Draw draw = draw_tokens(logits_bv, uniform, settings);
    const std::vector<int64_t> rows = take(draw, settings, active);
    decoder.keep(rows);
    if (rows.empty()) continue;
    logits_bv = decoder.step(draw.token_b.index_select(0, to_device(rows, draw.token_b.device())));
  }
  return all;
}

}  // namespace ringfold
