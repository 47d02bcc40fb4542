// A step played through event by event: what each rank does and when, on any number of ranks. No clock, no I/O.
#pragma once

#include <cstdint>
#include <vector>

#include "ringfold/plan/plan.h"

namespace ringfold {

struct SimulatedStep {
  double step_us = 0;
  std::vector<double> busy_us;  // per lane rank
};

// Every pack takes its predicted time, or with noise that time * exp(noise * z), z normal and seeded. Lockstep: a
// micro-step starts when the slowest pack of the one before is done. Free: a pack starts when its ranks are.
SimulatedStep simulate_step(const Plan& plan, double noise = 0, uint64_t seed = 0);

}  // namespace ringfold
