// How the processes of a job find each other and agree that all of them may begin. Built before any communicator, so a
// rank with a broken flag or data file ends the job on every rank with one message instead of a hang.
#pragma once

#include <c10/core/Device.h>

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

class Monitor;

struct CommOptions {
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};  // --comm-timeout-seconds
  // Network interface or own address; empty: the one that reaches master_addr (loopback on a single host).
  std::string interface;
  // At start, for a rank that gives no sign of life.
  std::chrono::milliseconds startup_limit{std::chrono::seconds(60)};
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
  // are fine. `name` tells apart the successive checks of a run. A rank that gives signs of life - it loads a model -
  // is waited for until `limit`, by default the timeout; one that never came or fell silent, for the start-up limit (or
  // the timeout). Throws PeerError that names those ranks.
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

  // Communicators among the given ranks (own included), own position = lane rank: one for CP traffic, one for
  // reductions; Gloo for tensors of the CPU, NCCL for those of `device`. `name` is unique to the lane. A lane of one
  // touches no backend.
  LaneComms connect_lane(const std::vector<Rank>& lane, const std::string& name,
                         c10::Device device = c10::Device(c10::DeviceType::CPU));

  // Null for one process.
  const std::shared_ptr<Monitor>& monitor() const { return monitor_; }
  // Tells the other ranks why this one ends, before its connections close; a host of the store stays a moment for them.
  void tell_failure(const std::string& text);

 private:
  void start_monitor(const std::string& store_host);
  std::chrono::milliseconds startup_limit() const;
  // What a store call that came back with an error, or not at all, means to the user.
  PeerError lost_store(const std::string& operation, std::chrono::milliseconds limit) const;

  std::shared_ptr<c10d::Store> store_;  // null for one process
  Rank rank_;
  int world_size_;
  CommOptions options_;
  std::string address_;       // of the store, for messages
  bool hosts_store_ = false;  // the store ends with this process
  std::shared_ptr<Monitor> monitor_;
};

// Throws a UsageError that names the ranks in the minority and both values when the strings differ.
void require_equal(const std::vector<std::string>& by_rank, const std::string& what, const std::string& hint);

}  // namespace ringfold
