#include "ringfold/train/rl_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "ringfold/base/log.h"
#include "ringfold/train/advantages.h"
#include "ringfold/train/log_probs.h"

namespace ringfold {

RlFields rl_fields(Session& session, const DenseModel& model, const Dataset& data) {
  RlFields rl;
  const bool own_advantages = std::all_of(data.samples.begin(), data.samples.end(), [](const Sample& s) {
    return !s.advantages.empty() || s.response_length == 0;
  });
  if (own_advantages) {
    rl.advantages.assign(data.samples.size(), 0.0);
  } else {
    const Advantages advantages = group_advantages(data);
    rl.advantages = advantages.per_sample;
    if (session.is_main()) {
      log::info(fmt::format("ringfold: {} groups ({} of one sample, {} with equal rewards: advantage 0)",
                            advantages.groups, advantages.single_groups, advantages.flat_groups));
    }
  }
  for (const Sample& sample : data.samples) {
    rl.old_log_probs.push_back(session.settings.use_rollout_logprobs ? sample.rollout_log_probs : sample.old_log_probs);
  }
  const auto missing = std::find_if(data.samples.begin(), data.samples.end(), [&](const Sample& sample) {
    return sample.response_length > 0 && rl.old_log_probs[static_cast<size_t>(&sample - data.samples.data())].empty();
  });
  if (missing == data.samples.end()) return rl;
  if (session.settings.use_rollout_logprobs) {
    throw DataError(fmt::format(
        "[data] {}:{} (sample {}): --use-rollout-logprobs needs the field `rollout_log_probs`. Hint: give it for every "
        "sample, or drop the flag to recompute the old log-probs",
        data.file, missing->line, missing->id.value()));
  }
  if (session.is_main()) log::info("ringfold: computing old log-probs with the initial weights");
  const std::vector<SampleScores> scores = score_dataset(session, model, data);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (rl.old_log_probs[i].empty()) rl.old_log_probs[i] = scores[i].log_probs;
  }
  return rl;
}

}  // namespace ringfold
