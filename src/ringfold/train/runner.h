// One pack through the model: shared by training, log-prob passes and the parity check.
#pragma once

#include <functional>

#include "ringfold/models/qwen3/model.h"
#include "ringfold/train/pack_inputs.h"
#include "ringfold/train/settings.h"

namespace ringfold {

struct PackPlace {
  Exchange* exchange = nullptr;
  LaneRank rank{0};
  int64_t step = 0;
  int micro_step = 0;
};

// The kernel that --attention-kernel stands for.
AttentionKernel attention_kernel(const RunSettings& settings);

// The context of `group` as seen by place.rank.
CpContextPtr make_context(const RunSettings& settings, const PlannedGroup& group, const PackPlace& place,
                          CpCommType comm);

// Runs one pack's work; out of memory becomes a RunError that names rank, micro-step, CP size, tokens and the remedy.
void with_memory_check(const PlannedGroup& group, const PackPlace& place, const std::function<void()>& work);

// Hidden states of the scored rows of the pack, differentiable; and the options of the head.
at::Tensor hidden_of_pack(const DenseModel& model, const RunSettings& settings, const PackInputs& inputs,
                          const CpContextPtr& context, const DenseModel::GradientsDone& gradients_done = nullptr);
LinearLogProbOptions head_options(const RunSettings& settings);

// Hidden states of the pack, then log-prob, entropy and greedy flag of the scored rows. Follows the grad mode.
TokenScores score_pack(const DenseModel& model, const RunSettings& settings, const PackInputs& inputs,
                       const CpContextPtr& context);

}  // namespace ringfold
