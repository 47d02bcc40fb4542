#include "ringfold/plan/simulate.h"

#include <algorithm>
#include <cmath>

#include "ringfold/plan/seeded_random.h"

namespace ringfold {

SimulatedStep simulate_step(const Plan& plan, double noise, uint64_t seed) {
  SeededRandom random(seed);
  const size_t ranks = static_cast<size_t>(plan.topology.lane_size());
  SimulatedStep result{0, std::vector<double>(ranks, 0.0)};
  std::vector<double> ready_us(ranks, 0.0);
  for (const MicroStep& step : plan.micro_steps) {
    if (plan.topology.execution == Execution::kLockstep) std::fill(ready_us.begin(), ready_us.end(), result.step_us);
    for (const PlannedGroup& group : step.groups) {
      const double pack_us = noise > 0 ? group.cost_us * std::exp(noise * random.normal()) : group.cost_us;
      const auto first = ready_us.begin() + group.first_rank.value();
      const auto last = first + group.cp_size.value();
      const double end_us = *std::max_element(first, last) + pack_us;
      std::fill(first, last, end_us);
      for (int r = 0; r < group.cp_size.value(); ++r) {
        result.busy_us[static_cast<size_t>(group.first_rank.value() + r)] += pack_us;
      }
      result.step_us = std::max(result.step_us, end_us);
    }
  }
  return result;
}

}  // namespace ringfold
