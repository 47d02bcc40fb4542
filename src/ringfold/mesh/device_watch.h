// Watches the work that a rank has given its device: NCCL itself never notices a silent peer, and the host notices
// nothing before it next waits for the device. When work has failed, another rank has told a failure, or nobody of the
// lane has got on for the timeout, the communicators are aborted - which ends their kernels and frees the host - and
// every later call meets the failure. From then on the process ends within kEndLimit (mesh/process_end.h), also when
// the abort does not free it. It needs c10d's Work alone, so that tests do without a GPU.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "ringfold/mesh/peer_failure.h"

namespace ringfold {

class DeviceWatch {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  // Work of one stream ends in the order in which it was issued. kOwn hangs on no peer: its end tells that this rank
  // gets on.
  enum class Stream { kExchange, kReduction, kOwn };

  // `abort` ends the communicators and owns what it needs. Called once, on a thread of the watch, while no issue() is
  // under way - or one that has been stuck for two seconds.
  DeviceWatch(LanePlace place, std::function<void()> abort);
  // Does not wait for a thread that the driver keeps.
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Runs `call`, one at a time, and watches the work that it returns, if any; a call that does not return is like work
  // that does not end. Throws the failure, if there was one, and what `call` throws as a failure of this rank or a
  // peer.
  WorkPtr issue(Stream stream, const std::string& operation, const std::function<WorkPtr()>& call);
  // Lets the current stream wait for the work. Throws like issue().
  void wait(c10d::Work& work, const std::string& operation);
  // Throws the failure, if there was one here or on another rank.
  void check(const std::string& operation);
  bool has_failed() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which is left behind when it is stuck
};

}  // namespace ringfold
