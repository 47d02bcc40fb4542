// Legend: b sequences, v vocabulary.
#include "ringfold/rollout/sampler.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "ringfold/base/error.h"
#include "ringfold/device/device.h"
#include "ringfold/kernels/decode.h"
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
  std::vector<int64_t> token;
  std::vector<double> log_prob;
};

Draw on_host(const at::Tensor& token_b, const at::Tensor& log_prob_b) {
  const at::Tensor tokens = token_b.cpu(), log_probs = log_prob_b.cpu();
  const int64_t count = tokens.numel();
  return {{tokens.const_data_ptr<int64_t>(), tokens.const_data_ptr<int64_t>() + count},
          {log_probs.const_data_ptr<double>(), log_probs.const_data_ptr<double>() + count}};
}

// One token a row by the inverse of the cumulative distribution at `uniform`.
Draw draw_tokens(const at::Tensor& logits_bv, const std::vector<double>& uniform, const SamplingSettings& settings) {
  const at::Tensor uniform_b = to_device(uniform, logits_bv.device());
  const bool some = settings.top_k > 0 || settings.top_p < 1;
  if (!some && logits_bv.is_cuda() && logits_bv.scalar_type() == at::kFloat &&
      logits_bv.size(1) <= fused::kMaxDrawnVocabulary) {
    const at::Tensor drawn_2b = fused::draw(logits_bv.contiguous(), uniform_b, settings.temperature).cpu();
    return on_host(drawn_2b.select(0, 0).to(at::kLong), drawn_2b.select(0, 1));
  }
  const at::Tensor log_p_bv = at::log_softmax(logits_bv.to(at::kDouble) / settings.temperature, 1);
  at::Tensor p_bv = log_p_bv.exp(), order_bv;
  if (some) {
    std::tie(p_bv, order_bv) = p_bv.sort(1, /*descending=*/true);
    // A token is out when those before it have the probability already; the likeliest always stays.
    const at::Tensor before_bv = p_bv.cumsum(1) - p_bv;
    p_bv = p_bv.masked_fill(before_bv.ge(settings.top_p), 0);
    if (settings.top_k > 0 && settings.top_k < p_bv.size(1)) p_bv.slice(1, settings.top_k).zero_();
  }
  const at::Tensor cumulative_bv = p_bv.cumsum(1);
  const at::Tensor target_b1 = uniform_b.unsqueeze(1) * cumulative_bv.slice(1, -1);
  // The first entry above the target has a probability above 0.
  at::Tensor place_b1 = at::searchsorted(cumulative_bv.contiguous(), target_b1.contiguous(), false, /*right=*/true);
  place_b1 = place_b1.clamp_max(p_bv.size(1) - 1);
  const at::Tensor token_b1 = some ? order_bv.gather(1, place_b1) : place_b1;
  return on_host(token_b1.squeeze(1), log_p_bv.gather(1, token_b1).squeeze(1));
}

// One sequence that is being decoded.
struct Active {
  SampledResponse* response;
  uint64_t stream;
  int64_t limit;  // tokens of the response
  int64_t given;  // where it ends whatever is drawn; 0: at a stop token
};

int64_t response_limit(const SamplingSettings& settings, const SamplingPrompt& prompt) {
  if (settings.max_context_tokens == 0) return settings.max_response_tokens;
  return std::min(settings.max_response_tokens,
                  settings.max_context_tokens - static_cast<int64_t>(prompt.tokens.size()));
}

// What a sequence of the prompt may grow to.
int64_t most_tokens(const SamplingSettings& settings, const SamplingPrompt& prompt) {
  return static_cast<int64_t>(prompt.tokens.size()) + response_limit(settings, prompt);
}

DecoderLimits decoder_limits(const std::vector<SamplingPrompt>& prompts, const SamplingSettings& settings) {
  DecoderLimits limits{settings.max_sequences, 0, settings.eager};
  int64_t responses = 0;
  for (const SamplingPrompt& prompt : prompts) {
    responses += prompt.responses;
    limits.sequences = std::max(limits.sequences, prompt.responses);
    limits.tokens = std::max(limits.tokens, most_tokens(settings, prompt));
  }
  limits.sequences = std::min(limits.sequences, responses);
  return limits;
}

// Whether the response ends with the token just appended.
bool has_ended(const SamplingSettings& settings, const Active& sequence) {
  SampledResponse& response = *sequence.response;
  const auto count = static_cast<int64_t>(response.tokens.size());
  const auto& stops = settings.stop_token_ids;
  const bool stopped = sequence.given > 0
                           ? count >= sequence.given
                           : std::find(stops.begin(), stops.end(), response.tokens.back()) != stops.end();
  response.truncated = !stopped && count >= sequence.limit;
  return stopped || response.truncated;
}

double uniform_of(const Active& sequence) {
  const uint64_t bits = splitmix64(sequence.stream + sequence.response->tokens.size());
  return static_cast<double>(bits >> 11) / 9007199254740992.0;
}

// The responses of a call, from the first prompt to the last token.
class Sampling {
 public:
  Sampling(const DenseModel& model, const std::vector<SamplingPrompt>& prompts, const SamplingSettings& settings)
      : prompts_(prompts),
        settings_(settings),
        decoder_(make_decoder(model, decoder_limits(prompts, settings))),
        all_(prompts.size()) {}

  std::vector<std::vector<SampledResponse>> run() {
    while (next_ < prompts_.size() || !active_.empty()) {
      while (next_ < prompts_.size() && has_room(prompts_[next_])) begin_next();
      if (settings_.on_token) settings_.on_token();
      draw();
    }
    return std::move(all_);
  }

 private:
  bool has_room(const SamplingPrompt& prompt) const;
  void begin_next();
  void draw();

  const std::vector<SamplingPrompt>& prompts_;
  const SamplingSettings& settings_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<std::vector<SampledResponse>> all_;
  size_t next_ = 0;  // prompt
  std::vector<Active> active_;
  at::Tensor logits_bv_;
};

bool Sampling::has_room(const SamplingPrompt& prompt) const {
  const auto count = static_cast<int64_t>(active_.size());
  if (count > 0 && count + prompt.responses > settings_.max_sequences) return false;
  const int64_t tokens = most_tokens(settings_, prompt);
  if (decoder_->fits(tokens, prompt.responses)) return true;
  if (count > 0) return false;
  throw RunError(fmt::format(
      "[rollout] cache of keys and values: got too little memory, expected room for {} responses of up to {} tokens. "
      "Hint: lower --rollout-max-response-len or --n-samples-per-prompt, or give --offload-train",
      prompt.responses, tokens));
}

void Sampling::begin_next() {
  const SamplingPrompt& prompt = prompts_[next_];
  std::vector<SampledResponse>& responses = all_[next_++];
  responses.resize(static_cast<size_t>(prompt.responses));
  const int64_t limit = response_limit(settings_, prompt);
  RINGFOLD_ASSERT(limit >= 1, "a prompt leaves room for a response");
  RINGFOLD_ASSERT(prompt.response_tokens.empty() || prompt.response_tokens.size() == responses.size(),
                  "a length a response");
  const at::Tensor first_v = decoder_->add_prompt(prompt.tokens, prompt.responses, most_tokens(settings_, prompt));
  const at::Tensor first_bv = first_v.unsqueeze(0).expand({prompt.responses, first_v.size(0)});
  logits_bv_ = active_.empty() ? first_bv : at::cat({logits_bv_, first_bv});
  for (size_t copy = 0; copy < responses.size(); ++copy) {
    active_.push_back({&responses[copy], splitmix64(splitmix64(settings_.seed ^ splitmix64(prompt.stream)) + copy),
                       limit, prompt.response_tokens.empty() ? 0 : prompt.response_tokens[copy]});
  }
}

void Sampling::draw() {
  std::vector<double> uniform;
  for (const Active& sequence : active_) uniform.push_back(uniform_of(sequence));
  const Draw drawn = draw_tokens(logits_bv_, uniform, settings_);
  std::vector<int64_t> rows, ids;
  std::vector<Active> going;
  for (size_t i = 0; i < active_.size(); ++i) {
    active_[i].response->tokens.push_back(drawn.token[i]);
    active_[i].response->log_probs.push_back(drawn.log_prob[i]);
    if (has_ended(settings_, active_[i])) continue;
    rows.push_back(static_cast<int64_t>(i));
    ids.push_back(drawn.token[i]);
    going.push_back(active_[i]);
  }
  active_ = std::move(going);
  decoder_->keep(rows);
  if (!rows.empty()) logits_bv_ = decoder_->step(ids);
}

}  // namespace

std::vector<std::vector<SampledResponse>> sample_responses(const DenseModel& model,
                                                           const std::vector<SamplingPrompt>& prompts,
                                                           const SamplingSettings& settings) {
  if (prompts.empty()) return {};
  return Sampling(model, prompts, settings).run();
}

}  // namespace ringfold
