#include "ringfold/mesh/gloo/peer_watch.h"

#include <ATen/ops/zeros.h>

namespace ringfold {
namespace {

// Long against an exchange, so that a probe is rare; short against a user's patience.
constexpr std::chrono::milliseconds kProbeInterval{500};

}  // namespace

PeerWatch::PeerWatch(GroupPtr group) : group_(std::move(group)), thread_([this] { run(); }) {}

PeerWatch::~PeerWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool PeerWatch::wait(c10d::Work& work, LaneRank peer, std::chrono::milliseconds limit) {
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
  return work.wait(limit);
}

void PeerWatch::run() {
  std::unique_lock lock(mutex_);
  const c10d::Work* seen = nullptr;
  while (!changed_.wait_for(lock, kProbeInterval, [this] { return stop_; })) {
    // The lock is held during the probe: the waiting thread cannot issue anything meanwhile.
    if (awaited_ != nullptr && awaited_ == seen && !is_connected(peer_)) awaited_->abort();
    seen = awaited_;
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
