#include "ringfold/mesh/gloo/peer_watch.h"

#include <ATen/ops/zeros.h>

#include "ringfold/mesh/threads.h"

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

// Long against an exchange, so that a look is rare; short against a user's patience.
constexpr std::chrono::milliseconds kLookInterval{100};
constexpr int kLooksAProbe = 5;
constexpr std::chrono::hours kNoLimit{1000};  // more would overflow Gloo's nanoseconds

}  // namespace

PeerWatch::PeerWatch(GroupPtr group, std::shared_ptr<Monitor> monitor)
    : group_(std::move(group)), monitor_(std::move(monitor)), thread_([this] { run(); }) {}

PeerWatch::~PeerWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool PeerWatch::wait(c10d::Work& work, LaneRank peer) {
  {
    const std::lock_guard lock(mutex_);
    awaited_ = &work;
    peer_ = peer;
  }
  // The watching thread sleeps by the clock: waking it for every wait would cost more than most waits last.
  struct EndOfWait {
    PeerWatch& watch;
    ~EndOfWait() {
      const std::lock_guard lock(watch.mutex_);
      watch.awaited_ = nullptr;
    }
  } const end{*this};
  return work.wait(kNoLimit);
}

void PeerWatch::run() {
  std::unique_lock lock(mutex_);
  const c10d::Work* seen = nullptr;
  int looks = 0;
  for (auto slept_at = Clock::now(); !changed_.wait_for(lock, kLookInterval, [this] { return stop_; });
       slept_at = Clock::now()) {
    if (Clock::now() - slept_at > kSlept) monitor_->forgive_sleep();
    // The lock is held during the look: the waiting thread cannot issue anything meanwhile.
    looks = awaited_ != nullptr && awaited_ == seen ? looks + 1 : 0;
    seen = awaited_;
    if (looks == 0) continue;
    if (monitor_->wait_is_over() || (looks % kLooksAProbe == 0 && !is_connected(peer_))) awaited_->abort();
  }
}

bool PeerWatch::is_connected(LaneRank peer) {
  try {
    std::vector<at::Tensor> nothing{at::zeros({1}, at::kByte)};
    probes_.push_back(group_->send(nothing, peer.value(), static_cast<int>(kProbeTag)));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace ringfold
