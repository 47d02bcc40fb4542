// Waits for Gloo, with a look at the peer now and then. Gloo notices a closed connection, yet about once in a hundred
// times does not wake the waiting thread; the wait would last until the time-out. A new send to a closed connection
// fails at once, so a thread beside the waiting one tries that.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "ringfold/base/ids.h"
#include "ringfold/mesh/gloo/gloo_group.h"

namespace ringfold {

class PeerWatch {
 public:
  // Tag of the probes, which no one receives: Gloo only announces them. No exchange uses it.
  static constexpr uint32_t kProbeTag = 0x7fffffffU;

  explicit PeerWatch(GroupPtr group);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // False: the connection to the peer is closed. Throws what Gloo throws, after the limit too. One caller at a time.
  bool wait(c10d::Work& work, LaneRank peer, std::chrono::milliseconds limit);

 private:
  void run();
  bool is_connected(LaneRank peer);

  GroupPtr group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  c10d::Work* awaited_ = nullptr;
  LaneRank peer_;
  bool stop_ = false;
  std::vector<c10::intrusive_ptr<c10d::Work>> probes_;
  std::thread thread_;
};

}  // namespace ringfold
