// The GPU's way to run blocks: all of one mask in one kernel call. Internal to attention/.
#pragma once

#include "ringfold/attention/blocks.h"

namespace ringfold::attention_detail {

bool uses_varlen(const AttentionCall& call, const at::Tensor& q_thd);

// As attend() and attend_backward(), for blocks that no context keeps.
void attend_varlen(const AttentionCall& call, const std::vector<Block>& blocks, const at::Tensor& q_thd,
                   const at::Tensor& k_sgd, const at::Tensor& v_sgd, AttentionBlock& result);
void attend_varlen_backward(const AttentionCall& call, const std::vector<Block>& blocks, const ForwardState& state,
                            const at::Tensor& k_sgd, const at::Tensor& v_sgd, AttentionGrads& grads);

}  // namespace ringfold::attention_detail
