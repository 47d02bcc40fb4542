// The wait of a rank's device for the others of its lane. NCCL names no peer and the host goes on meanwhile, so the
// wait hangs on all of them: it is rightful as long as one of them gets on, and of those that do not the one is named
// that is silent, or that works where the others wait.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "ringfold/mesh/beat.h"
#include "ringfold/mesh/monitor.h"

namespace ringfold {

class DeviceWait {
 public:
  using Clock = std::chrono::steady_clock;

  DeviceWait(std::vector<Rank> others, std::string operation, Clock::time_point now);

  // Reads the beats of the others. Throws what the store throws.
  void look(c10d::Store& store);
  // Nobody has got on for this long.
  bool is_over(Clock::time_point now, std::chrono::milliseconds timeout) const { return now - moved_at_ >= timeout; }
  void forgive(Clock::time_point now) { moved_at_ = now; }
  Clock::time_point began_at() const { return began_at_; }
  const std::string& operation() const { return operation_; }
  Monitor::Finding examine(Clock::time_point now, std::chrono::milliseconds interval) const;

 private:
  std::vector<Rank> others_;
  std::string operation_;
  Clock::time_point began_at_, moved_at_;
  BeatReader reader_;
};

}  // namespace ringfold
