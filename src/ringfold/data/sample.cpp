#include "ringfold/data/sample.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "ringfold/base/hash.h"

namespace ringfold {

int64_t Sample::loss_tokens() const {
  return std::count(loss_mask.begin(), loss_mask.end(), uint8_t{1});
}

int64_t Dataset::total_tokens() const {
  return std::transform_reduce(samples.begin(), samples.end(), int64_t{0}, std::plus<>(),
                               [](const Sample& sample) { return sample.length(); });
}

int64_t Dataset::longest() const {
  int64_t longest = 0;
  for (const Sample& sample : samples) longest = std::max(longest, sample.length());
  return longest;
}

uint64_t Dataset::digest() const {
  Hash hash;
  hash.add(samples.size());
  for (const Sample& sample : samples) {
    hash.add(sample.id.value());
    hash.add(std::span<const int64_t>(sample.tokens));
    hash.add(sample.response_length);
    hash.add(std::span<const uint8_t>(sample.loss_mask));
    hash.add(sample.reward.has_value());
    hash.add(sample.reward.value_or(0));
    hash.add(sample.group.has_value());
    hash.add(std::string_view(sample.group ? *sample.group : ""));
    for (const auto* values :
         {&sample.old_log_probs, &sample.rollout_log_probs, &sample.ref_log_probs, &sample.advantages}) {
      hash.add(std::span<const double>(*values));
    }
  }
  return hash.value();
}

}  // namespace ringfold
