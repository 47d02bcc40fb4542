// Waits for Gloo, with a look at the peer now and then. Two reasons. Gloo notices a closed connection, yet about once
// in a hundred times does not wake the waiting thread; a new send to a closed connection fails at once, so a thread
// beside the waiting one tries that. And Gloo's own time-out closes all connections, rightful waits included; so Gloo
// waits without limit, and the monitor says when a wait is over.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ringfold/base/ids.h"
#include "ringfold/mesh/gloo/gloo_group.h"
#include "ringfold/mesh/monitor.h"

namespace ringfold {

class PeerWatch {
 public:
  // Tag of the probes, which no one receives: Gloo only announces them. No exchange uses it.
  static constexpr uint32_t kProbeTag = 0x7fffffffU;

  PeerWatch(GroupPtr group, std::shared_ptr<Monitor> monitor);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // False: the wait ended without the work being done, because the connection to the peer is closed or the monitor
  // gave it up. Throws what Gloo throws. One caller at a time, between the monitor's begin_wait and end_wait.
  bool wait(c10d::Work& work, LaneRank peer);

 private:
  void run();
  bool is_connected(LaneRank peer);

  GroupPtr group_;
  std::shared_ptr<Monitor> monitor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  c10d::Work* awaited_ = nullptr;
  LaneRank peer_;
  bool stop_ = false;
  std::vector<c10::intrusive_ptr<c10d::Work>> probes_;
  std::thread thread_;
};

}  // namespace ringfold
