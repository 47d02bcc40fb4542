// SIGTERM and Ctrl-C as a request: the loop ends after the step, or rollout, that is being made.
#pragma once

#include "ringfold/mesh/collectives.h"

namespace ringfold {

// From here on the first signal is remembered, and one that comes seconds later ends the process at once.
void watch_stop_signals();

// The signal that any rank was given, 0: none; all ranks agree, so that none is left waiting in the next step.
int agreed_stop_signal(Collectives& collectives);

}  // namespace ringfold
