// Decoding on a GPU, for models with fused layers (models/qwen3/fused_layer.h). Keys and values lie in pages that ended
// sequences leave to others (page_table.h); attention reads every page once; the kernels of a step are recorded, one
// recording for each round number of sequences, and started as a whole.
// What bounds a step: it reads all weights and all that is cached. Qwen3-0.6B in bf16 on an H200 (4.8 TB/s): 1.2 GB of
// weights are 0.25 ms; 114,688 bytes a cached token: 32 sequences of 4,096 are 15 GB, 3.1 ms. On top come ten small
// kernels a layer, some 3 us each when recorded.
// Legend: n rows (sequences, and empty ones up to the round number), t tokens of a prompt, h hidden, d head dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "ringfold/device/recorded_work.h"
#include "ringfold/kernels/decode.h"
#include "ringfold/rollout/decoder.h"
#include "ringfold/rollout/page_table.h"

namespace ringfold {

class PagedDecoder final : public Decoder {
 public:
  // Takes pages for limits.sequences sequences of limits.tokens tokens, or as many as the device has memory for.
  PagedDecoder(const DenseModel& model, const DecoderLimits& limits);

  bool fits(int64_t tokens, int64_t copies) const override { return table_.fits(tokens, copies); }
  at::Tensor add_prompt(const std::vector<int64_t>& prompt, int64_t copies, int64_t most_tokens) override;
  at::Tensor step(const std::vector<int64_t>& ids_b) override;
  void keep(const std::vector<int64_t>& rows) override { table_.keep(rows); }
  int64_t sequences() const override { return table_.sequences(); }

 private:
  struct Step {
    at::Tensor inputs;  // int64: ids, positions, lengths, slots, places (n each), work_begin (n + 1)
    at::Tensor logits_nv;
    std::unique_ptr<RecordedWork> recorded;  // null: eager
  };
  // All layers over token rows; `attend(layer, qkv)` gives the heads' outputs.
  template <typename Attend>
  at::Tensor layers(const at::Tensor& ids_t, const Attend& attend) const;
  at::Tensor logits(const at::Tensor& hidden_th) const;
  void run(Step& step) const;
  Step& step_of(int64_t rows);
  // A place of the page table as a row of d elements, for head 0.
  int64_t row_of(int64_t place) const;
  fused::HeadNorm head_norm(size_t layer) const;

  const DenseModel& model_;
  at::Device device_;
  HeadShape shape_;
  bool eager_;
  PageTable table_;
  at::Tensor page_table_;                  // int32, on the device
  std::vector<fused::Pages> pages_;        // by layer
  std::vector<at::Tensor> qkv_, gate_up_;  // weights, by layer
  at::Tensor cos_td_, sin_td_;             // of all positions
  std::map<int64_t, Step> steps_;          // by rows
};

}  // namespace ringfold
