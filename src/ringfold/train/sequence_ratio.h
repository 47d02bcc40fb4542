// What an objective that is not token-local needs before its token losses: one number a sequence, reduced over the CP
// group that holds the sequence's shards. The two phases of such a pack:
//   1. log-probs of all its rows, then sequence_log_ratio   (one exchange of as many numbers as the pack has samples)
//   2. token_loss with terms.sequence_log_ratio_n, on the whole pack or slice by slice
#pragma once

#include <ATen/core/Tensor.h>

#include "ringfold/shard/cp_context.h"
#include "ringfold/train/objective.h"

namespace ringfold {

// GSPO (arXiv:2507.18071): by loss token of this rank, the mean over all loss tokens of its sample of
// log p - old log p. fp64, without gradient. Collective over the pack's CP group: every member calls it, also one
// without loss tokens; the sum is taken in group order, so all members get the same bits.
at::Tensor sequence_log_ratio(const at::Tensor& log_prob_n, const TokenTerms& terms, const CpContext& context);

}  // namespace ringfold
