// How a process ends after a failure, so that a job of many ranks shows its user one message.
//
// A lost peer is usually the echo of another rank's failure. Under the launcher such a rank waits a while, in which the
// launcher ends it or the rank with the cause speaks. The launcher also hands its ranks a pipe that holds one byte,
// "the voice" (RINGFOLD_LAUNCH_VOICE): whoever reports takes it, and of the ranks that lost or gave up a peer only the
// one that gets it speaks.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "ringfold/mesh/launch_env.h"
#include "ringfold/mesh/rendezvous.h"

namespace ringfold {

// A failure that another rank tells the user.
class ReportedElsewhere : public Error {
 public:
  explicit ReportedElsewhere(ExitCode code) : Error(code, "reported by another rank") {}
};

// A failure that this rank was chosen to tell, whatever its rank.
class ToldHere : public Error {
 public:
  using Error::Error;
};

// The text of a failure, in one line; those that are not ours are named by rank.
std::string message_of(const std::exception& failure, Rank rank);
// std::bad_alloc, or what ATen's allocator throws; never an Error of ours.
bool is_out_of_memory(const std::exception& failure);

// Prints "ringfold: error: <message>" as one line on stderr, or leaves that to another rank, and returns the exit code
// (4 for exceptions that are not ours). `shared_by_all_ranks`: every rank meets this failure alike, as with a wrong
// flag; then rank 0 alone prints it, but for a ToldHere.
int report_failure(const std::exception& failure, const LaunchEnv& env, bool shared_by_all_ranks = false);

// The same for a run that has begun: settings, data and plans are the same on every rank by then, so what is wrong with
// them is shared.
int report_run_failure(const std::exception& failure, const LaunchEnv& env);

// After Rendezvous::agree: returns when there is no failure. Otherwise throws on every rank with the code of the first
// failure; each distinct message is told once, by the lowest rank that met it.
void throw_agreed_failure(const std::vector<Rendezvous::Status>& failures, Rank self);

}  // namespace ringfold
