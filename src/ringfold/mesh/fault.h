// Faults on purpose, for tests and drills: RINGFOLD_FAULT="rank:step:stage:action[:seconds]" (several by commas). The
// one place that reads that variable; without it nothing happens.
//
//   rank, step  numbers, or * for all; steps count from 1, before the first step it is 0
//   stage       loading, planning, forward, backward, reduction, update, logging, evaluation, scoring, saving;
//               of rl sampling and judging, whose steps are rollouts
//   action      kill   SIGKILL to itself          stop   SIGSTOP to itself
//               cut    its connections to other ranks are shut down (the store's stays)
//               hang   it sleeps for ever         slow   it sleeps for `seconds`, then goes on
//               fail   a RunError                 oom    std::bad_alloc
//               term   SIGTERM to itself          exit   the process ends with code 5, without a word
#pragma once

#include <cstdint>
#include <string_view>

#include "ringfold/base/ids.h"

namespace ringfold {

// Called when a rank enters a stage of its work. Throws UsageError when the variable is malformed.
void inject_fault(Rank rank, int64_t step, std::string_view stage);

}  // namespace ringfold
