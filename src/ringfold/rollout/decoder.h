// Token-by-token decoding of many sequences at once, on the very weights that are trained: a cache of keys and values
// for each, no copy of the model. The formulas are those of models/qwen3/model.cpp; a test compares the log-probs of
// the two. Legend: b sequences, t new tokens, g KV heads, s cached positions, d head dim, v vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ringfold/models/qwen3/model.h"

namespace ringfold {

class Decoder {
 public:
  explicit Decoder(const DenseModel& model);

  // Begins `copies` sequences with the prompt (at least one token), which runs once for all of them; they come after
  // those that are there. Returns the logits of what follows the prompt, (v), fp32 or the model's wider type.
  at::Tensor add_prompt(const std::vector<int64_t>& prompt, int64_t copies);
  // Appends one token to every sequence, ids (b) int64 on the model's device; logits of what follows, (b, v).
  at::Tensor step(const at::Tensor& ids_b);
  // Keeps these sequences, ascending, and drops the others.
  void keep(const std::vector<int64_t>& rows);

  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }

 private:
  struct LayerCache {
    at::Tensor k_bsgd, v_bsgd;  // positions past a sequence's length hold zeros or old values: masked
  };
  void reserve(int64_t sequences, int64_t positions);
  // All layers over token rows at `positions`; `attend(layer, q, k, v)` gives the heads' outputs (t, h, d).
  template <typename Attend>
  at::Tensor layers(const at::Tensor& ids_t, const std::vector<int64_t>& positions, const Attend& attend) const;
  at::Tensor logits(const at::Tensor& hidden_th) const;

  const DenseModel& model_;
  at::Device device_;
  std::vector<LayerCache> cache_;
  std::vector<int64_t> lengths_;  // tokens cached, by sequence
};

}  // namespace ringfold
