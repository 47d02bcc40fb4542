// How the processes of a job find each other and agree that all of them may begin. Built before any communicator, so a
// rank with a broken flag or data file ends the job on every rank with one message instead of a hang.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ringfold/base/error.h"
#include "ringfold/mesh/collectives.h"
#include "ringfold/mesh/exchange.h"
#include "ringfold/mesh/launch_env.h"

namespace c10d {
class Store;
}

namespace ringfold {

struct CommOptions {
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};  // --comm-timeout-seconds
  // Network interface or own address; empty: the one that reaches master_addr (loopback on a single host).
  std::string interface;
};

// The communicators of one rank in its lane.
struct LaneComms {
  std::unique_ptr<Exchange> exchange;
  std::unique_ptr<Collectives> collectives;
};

class Rendezvous {
 public:
  // Connects to the job's store (a TCPStore; rank 0 listens unless the launcher owns it). No-op for one process; with
  // several, SIGPIPE is ignored from here on.
  Rendezvous(const LaunchEnv& env, const CommOptions& options);
  // Over a given store, for ranks as threads in tests.
  Rendezvous(std::shared_ptr<c10d::Store> store, Rank rank, int world_size, const CommOptions& options);
  ~Rendezvous();

  // Every rank publishes its status (empty error: fine) and waits for all. Returns the failures by rank, empty when all
  // are fine. `name` tells apart the successive checks of a run. Throws PeerError naming the ranks that did not come
  // within `limit`; by default the start-up limit, min(timeout, 60 s).
  struct Status {
    Rank rank;
    ExitCode code = ExitCode::kOk;
    std::string error;
  };
  std::vector<Status> agree(const std::string& name, const Status& mine,
                            std::optional<std::chrono::milliseconds> limit = {});

  // Every rank's value, by rank. Same names, limit and errors as agree().
  std::vector<std::string> all_gather(const std::string& name, const std::string& value,
                                      std::optional<std::chrono::milliseconds> limit = {});

  // Gloo communicators among the given ranks (own included), own position = lane rank: one for CP traffic, one for
  // reductions. `name` is unique to the lane. A lane of one touches no backend.
  LaneComms connect_lane(const std::vector<Rank>& lane, const std::string& name);

 private:
  std::chrono::milliseconds startup_limit() const;
  // What a store call that came back with an error, or not at all, means to the user.
  PeerError lost_store(const std::string& operation) const;

  std::shared_ptr<c10d::Store> store_;  // null for one process
  Rank rank_;
  int world_size_;
  CommOptions options_;
  std::string address_;       // of the store, for messages
  bool hosts_store_ = false;  // the store ends with this process
};

// Throws a UsageError that names the ranks in the minority and both values when the strings differ.
void require_equal(const std::vector<std::string>& by_rank, const std::string& what, const std::string& hint);

}  // namespace ringfold
