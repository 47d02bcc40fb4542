#include "ringfold/plan/plan.h"

#include <algorithm>

#include "ringfold/base/hash.h"
#include "ringfold/base/pow2.h"

namespace ringfold {

const PlannedGroup* MicroStep::group_of(LaneRank rank) const {
  const auto group = std::find_if(groups.begin(), groups.end(), [&](const PlannedGroup& g) { return g.holds(rank); });
  return group == groups.end() ? nullptr : &*group;
}

int64_t padded_length(int64_t tokens, CpSize c) {
  return c.value() == 1 ? tokens : round_up(tokens, 2 * c.value());
}

int64_t zigzag_real_tokens(int64_t tokens, CpSize c, int index) {
  if (c.value() == 1) return tokens;
  const int64_t chunk = padded_length(tokens, c) / (2 * c.value());
  const auto real_in_chunk = [&](int64_t i) { return std::clamp<int64_t>(tokens - i * chunk, 0, chunk); };
  return real_in_chunk(index) + real_in_chunk(2 * c.value() - 1 - index);
}

// Predicted times stay out: they are for people and reports, and no rank acts on them.
uint64_t plan_fingerprint(const Plan& plan) {
  Hash hash;
  const Topology& t = plan.topology;
  for (const int64_t value :
       {int64_t{Plan::kSchema}, int64_t{t.world_size}, int64_t{t.tp}, int64_t{t.pp}, int64_t{t.dp}, int64_t{t.max_cp},
        int64_t{static_cast<int>(t.policy)}, int64_t{static_cast<int>(t.execution)}, plan.budget}) {
    hash.add(value);
  }
  hash.add(plan.micro_steps.size());
  for (const MicroStep& step : plan.micro_steps) {
    hash.add(step.groups.size());
    for (const PlannedGroup& group : step.groups) {
      hash.add(group.cp_size.value());
      hash.add(group.first_rank.value());
      hash.add(group.order);
      hash.add(group.samples.size());
      for (const SampleId id : group.samples) hash.add(id.value());
      hash.add(std::span<const int64_t>(group.lengths));
    }
  }
  return hash.value();
}

}  // namespace ringfold
