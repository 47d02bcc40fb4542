// Plans and measured steps as a Chrome trace: open it in Perfetto (ui.perfetto.dev) or chrome://tracing. A thread a
// lane rank, an event a pack; predicted and measured are two processes.
#pragma once

#include <span>
#include <string>

#include "ringfold/plan/plan.h"
#include "ringfold/report/timeline.h"

namespace ringfold {

// {"traceEvents":[...]}, times in microseconds.
std::string chrome_trace(const Plan& plan);
// Steps one after the other, each as long as it took; predicted packs start with their step.
std::string chrome_trace(std::span<const StepTimeline> steps);

}  // namespace ringfold
