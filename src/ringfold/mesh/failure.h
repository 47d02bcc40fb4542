// How a process ends after a failure, so that a job of many ranks shows its user one message.
//
// A lost peer is usually the echo of another rank's failure. Under the launcher such a rank waits a while, in which the
// launcher ends it or the rank with the cause speaks. The launcher also hands its ranks a pipe that holds one byte,
// "the voice" (RINGFOLD_LAUNCH_VOICE): whoever reports takes it, and an echo that comes too late for it stays silent.
#pragma once

#include <exception>

#include "ringfold/mesh/launch_env.h"

namespace ringfold {

// Prints "ringfold: error: <message>" as one line on stderr, or leaves that to another rank, and returns the exit code
// (4 for exceptions that are not ours).
int report_failure(const std::exception& failure, const LaunchEnv& env);

}  // namespace ringfold
