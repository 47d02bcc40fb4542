#include "ringfold/train/sequence_ratio.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace ringfold {

at::Tensor sequence_log_ratio(const at::Tensor& log_prob_n, const TokenTerms& terms, const CpContext& context) {
  const c10::NoGradGuard no_grad;
  const at::Tensor part_n = (log_prob_n.detach().to(at::kDouble) - terms.old_log_prob_n) * terms.sequence_share_n;
  at::Tensor mean_k = at::zeros({static_cast<int64_t>(context.layout.samples().size())}, part_n.options());
  mean_k.index_add_(0, terms.sequence_n, part_n);
  if (!context.group.is_single()) {
    const ExchangeKey key{context.step, context.micro_step, 0, Phase::kMerge};
    const std::vector<at::Tensor> parts = all_gather(*context.exchange, context.group, mean_k, key);
    mean_k = parts.front().clone();
    for (size_t member = 1; member < parts.size(); ++member) mean_k.add_(parts[member]);
  }
  return mean_k.index_select(0, terms.sequence_n);
}

}  // namespace ringfold
