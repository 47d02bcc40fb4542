// Decoding with plain operations, on any device and in any type: sequences are padded to the longest, the cache grows
// as they do. Legend: b sequences, t new tokens, g KV heads, s cached positions, d head dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ringfold/rollout/decoder.h"

namespace ringfold {

class PaddedDecoder final : public Decoder {
 public:
  explicit PaddedDecoder(const DenseModel& model);

  bool fits(int64_t, int64_t) const override { return true; }
  at::Tensor add_prompt(const std::vector<int64_t>& prompt, int64_t copies, int64_t most_tokens) override;
  at::Tensor step(const std::vector<int64_t>& ids_b) override;
  void keep(const std::vector<int64_t>& rows) override;
  int64_t sequences() const override { return static_cast<int64_t>(lengths_.size()); }

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
