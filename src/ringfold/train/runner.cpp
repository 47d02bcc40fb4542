#include "ringfold/train/runner.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "ringfold/base/error.h"
#include "ringfold/mesh/failure.h"

namespace ringfold {

AttentionKernel attention_kernel(const RunSettings& settings) {
  if (settings.attention_kernel == "reference") return AttentionKernel::kReference;
  if (settings.attention_kernel == "cudnn") return AttentionKernel::kCudnn;
  // On a GPU the fused kernels are of half precision only.
  const bool plain = settings.device == "cuda" && settings.dtype != "bfloat16" && settings.attention_kernel == "auto";
  return plain ? AttentionKernel::kReference : AttentionKernel::kFlash;
}

CpContextPtr make_context(const RunSettings& settings, const PlannedGroup& group, const PackPlace& place,
                          CpCommType comm) {
  const int index = place.rank.value() - group.first_rank.value();
  auto context = std::make_shared<CpContext>(CpGroup{group.first_rank, group.cp_size.value(), index},
                                             PackLayout(group.lengths, group.cp_size.value(), index));
  context->exchange = place.exchange;
  context->scheme = comm == CpCommType::kA2a         ? CpScheme::kAllToAll
                    : comm == CpCommType::kAllGather ? CpScheme::kAllGatherKv
                                                     : CpScheme::kRing;
  context->kernel = attention_kernel(settings);
  context->step = place.step;
  context->micro_step = place.micro_step;
  return context;
}

void with_memory_check(const PlannedGroup& group, const PackPlace& place, const std::function<void()>& work) {
  const auto out_of_memory = [&] {
    return RunError(fmt::format(
        "[train] out of memory: rank {}, step {}, micro-step {}, CP size {}, {} tokens on this rank. Hint: a smaller "
        "--max-tokens-per-gpu, --recompute full, or a smaller --log-prob-chunk-tokens",
        place.rank.value(), place.step, place.micro_step, group.cp_size.value(), group.padded_tokens.front()));
  };
  try {
    work();
  } catch (const std::exception& failure) {
    if (is_out_of_memory(failure)) throw out_of_memory();
    throw;
  }
}

at::Tensor hidden_of_pack(const DenseModel& model, const RunSettings& settings, const PackInputs& inputs,
                          const CpContextPtr& context, const DenseModel::GradientsDone& gradients_done) {
  const Recompute recompute = settings.recompute == "full"        ? Recompute::kFull
                              : settings.recompute == "selective" ? Recompute::kSelective
                                                                  : Recompute::kNone;
  return model.forward(inputs.ids_t, context, recompute, gradients_done).index_select(0, inputs.rows_n);
}

LinearLogProbOptions head_options(const RunSettings& settings) {
  return {settings.log_prob_chunk_tokens, settings.temperature};
}

TokenScores score_pack(const DenseModel& model, const RunSettings& settings, const PackInputs& inputs,
                       const CpContextPtr& context) {
  return linear_log_prob(hidden_of_pack(model, settings, inputs, context), model.head_weight(), inputs.target_n,
                         head_options(settings));
}

}  // namespace ringfold
