#include "ringfold/rollout/decoder.h"

#include "ringfold/models/qwen3/fused_layer.h"
#include "ringfold/rollout/padded_decoder.h"
#include "ringfold/rollout/paged_decoder.h"

namespace ringfold {

std::unique_ptr<Decoder> make_decoder(const DenseModel& model, const DecoderLimits& limits) {
  if (has_fused_layers(model)) return std::make_unique<PagedDecoder>(model, limits);
  return std::make_unique<PaddedDecoder>(model);
}

}  // namespace ringfold
