#include "ringfold/train/runner.h"

#include <ATen/ATen.h>

namespace ringfold {

CpContextPtr make_context(const RunSettings& settings, const PlannedGroup& group, const PackPlace& place,
                          CpCommType comm) {
  const int index = place.rank.value() - group.first_rank.value();
  auto context = std::make_shared<CpContext>(CpGroup{group.first_rank, group.cp_size.value(), index},
                                             PackLayout(group.lengths, group.cp_size.value(), index));
  context->exchange = place.exchange;
  context->scheme = comm == CpCommType::kAllGather ? CpScheme::kAllGatherKv : CpScheme::kRing;
  context->kernel = settings.attention_kernel == "reference" ? AttentionKernel::kReference : AttentionKernel::kFlash;
  context->step = place.step;
  context->micro_step = place.micro_step;
  return context;
}

TokenScores score_pack(const DenseModel& model, const RunSettings& settings, const PackInputs& inputs,
                       const CpContextPtr& context) {
  const Recompute recompute = settings.recompute == "full" ? Recompute::kFull : Recompute::kNone;
  const at::Tensor hidden_th = model.forward(inputs.ids_t, context, recompute);
  return linear_log_prob(hidden_th.index_select(0, inputs.rows_n), model.head_weight(), inputs.target_n,
                         {settings.log_prob_chunk_tokens, settings.temperature});
}

}  // namespace ringfold
