// Watches the NCCL work in flight: NCCL itself never notices a silent peer, and the host notices nothing before it next
// waits for the device. When the oldest work is not done within the limit, or has failed, the communicators are
// aborted - which ends their kernels and frees the host - and every later call meets the failure.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "ringfold/mesh/peer_failure.h"

namespace ringfold {

class NcclWatch {
 public:
  // `abort` ends the communicators; called once, from the watching thread.
  NcclWatch(LanePlace place, std::function<void()> abort);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  void add(c10::intrusive_ptr<c10d::Work> work, std::string name);
  // Throws the PeerError of the failure, if there was one.
  void check();
  bool has_failed();

 private:
  using Clock = std::chrono::steady_clock;
  struct InFlight {
    c10::intrusive_ptr<c10d::Work> work;
    std::string name;
    Clock::time_point since;  // when it was issued
  };
  void run();
  // The failure of the oldest work, if any.
  std::optional<PeerError> look();
  void end_process_if_stuck(const PeerError& failure);

  LanePlace place_;
  std::function<void()> abort_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<InFlight> in_flight_;
  Clock::time_point last_progress_;
  std::optional<PeerError> failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ringfold
