#include "ringfold/mesh/nccl/nccl_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace ringfold {
namespace {

constexpr std::chrono::milliseconds kInterval{100};
// After the abort the host's wait ends by itself; if it does not, this process must end all the same.
constexpr std::chrono::seconds kGrace{10};

}  // namespace

NcclWatch::NcclWatch(LanePlace place, std::function<void()> abort)
    : place_(std::move(place)), abort_(std::move(abort)), last_progress_(Clock::now()), thread_([this] { run(); }) {}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatch::add(c10::intrusive_ptr<c10d::Work> work, std::string name) {
  const std::lock_guard lock(mutex_);
  in_flight_.push_back({std::move(work), std::move(name), Clock::now()});
}

void NcclWatch::check() {
  const std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
}

bool NcclWatch::has_failed() {
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

std::optional<PeerError> NcclWatch::look() {
  const auto now = Clock::now();
  while (!in_flight_.empty()) {
    const InFlight& oldest = in_flight_.front();
    const auto begin = std::max(oldest.since, last_progress_);
    try {
      if (!oldest.work->isCompleted()) {
        // NCCL does not tell when a peer has failed; the peer does.
        if (now - begin < place_.timeout && !place_.monitor->note()) return std::nullopt;
        return peer_failure(place_, "a peer", oldest.name, now - begin, "timed out");
      }
    } catch (const std::exception& error) {
      return peer_failure(place_, "a peer", oldest.name, now - begin, error.what());
    }
    in_flight_.pop_front();
    last_progress_ = now;
  }
  return std::nullopt;
}

void NcclWatch::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kInterval, [this] { return stop_; })) {
    failure_ = look();
    if (!failure_) continue;
    const PeerError failure = *failure_;
    lock.unlock();
    abort_();
    lock.lock();
    end_process_if_stuck(failure);
    return;
  }
}

void NcclWatch::end_process_if_stuck(const PeerError& failure) {
  std::unique_lock lock(mutex_, std::adopt_lock);
  const bool freed = changed_.wait_for(lock, kGrace, [this] { return stop_; });
  lock.release();
  if (freed) return;
  std::fprintf(stderr, "ringfold: error: %s\n", failure.what());
  std::fflush(stderr);
  _exit(static_cast<int>(ExitCode::kFailure));
}

}  // namespace ringfold
