// Token-by-token decoding of many sequences at once, on the very weights that are trained: a cache of keys and values
// for each, no copy of the model. The formulas are those of models/qwen3/model.cpp; tests compare the log-probs of the
// two. Legend: b sequences, v vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ringfold/models/qwen3/model.h"

namespace ringfold {

class Decoder {
 public:
  virtual ~Decoder() = default;

  // Whether `copies` more sequences of at most `tokens` tokens each fit into the cache.
  virtual bool fits(int64_t tokens, int64_t copies) const = 0;
  // Begins `copies` sequences with the prompt (at least one token), which runs once for all of them; they come after
  // those that are there. `most_tokens`: what each may grow to, prompt included. Returns the logits of what follows the
  // prompt, (v), fp32 or the model's wider type.
  virtual at::Tensor add_prompt(const std::vector<int64_t>& prompt, int64_t copies, int64_t most_tokens) = 0;
  // Appends one token to every sequence, ids (b); logits of what follows, (b, v), which hold until the next call.
  virtual at::Tensor step(const std::vector<int64_t>& ids_b) = 0;
  // Keeps these sequences, ascending, and drops the others.
  virtual void keep(const std::vector<int64_t>& rows) = 0;

  virtual int64_t sequences() const = 0;
};

struct DecoderLimits {
  int64_t sequences = 0;  // at a time
  int64_t tokens = 0;     // of a sequence
  bool eager = false;     // do not record steps
};

// The decoder for the model and its device: pages and recorded steps where the model has fused layers
// (paged_decoder.h), else plain operations (padded_decoder.h).
std::unique_ptr<Decoder> make_decoder(const DenseModel& model, const DecoderLimits& limits);

}  // namespace ringfold
