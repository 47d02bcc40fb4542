// The one wording of a lost or silent peer, whichever backend noticed it.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ringfold/base/error.h"
#include "ringfold/base/ids.h"
#include "ringfold/mesh/monitor.h"

namespace ringfold {

// Where this process stands in its lane.
struct LanePlace {
  LaneRank self;
  std::vector<Rank> world_ranks;  // by lane rank
  std::chrono::milliseconds timeout;
  std::shared_ptr<Monitor> monitor;

  int size() const { return static_cast<int>(world_ranks.size()); }
  Rank world_rank(LaneRank lane_rank) const { return world_ranks.at(lane_rank.value()); }
  std::vector<Rank> others() const;            // world ranks, without this one
  std::string name(LaneRank lane_rank) const;  // "rank 5 (lane rank 1)"
};

// One wait for a peer, from construction to the end of its life.
class Wait {
 public:
  Wait(const LanePlace& place, LaneRank peer, const ExchangeKey& key);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  // What to throw when the wait came to nothing: the cause that another rank has told, or what the monitor finds, which
  // is then told to the others. Takes up to a second, in which the cause may come.
  PeerError failure() const;

 private:
  std::string silence(std::chrono::duration<double> elapsed) const;
  std::string loss(std::chrono::duration<double> elapsed, bool peer_is_alive) const;

  const LanePlace& place_;
  LaneRank peer_;
  ExchangeKey key_;
  std::chrono::steady_clock::time_point begin_;
};

// For a backend, or an operation, that does not wait by Wait. `who` is the peer, or "a peer" where the backend does not
// tell; `library_text` is what it said. Told to the others like Wait::failure.
PeerError peer_failure(const LanePlace& place, std::string_view who, std::string_view operation,
                       std::chrono::duration<double> elapsed, std::string_view library_text);

// Of work on the device, which its watch has found to have failed, or not to end. `library_text`: what NCCL said; empty
// when it said nothing. A RunError where NCCL failed on this rank itself, else a PeerError. Told to the others too.
std::exception_ptr device_failure(const LanePlace& place, std::string_view operation, std::string_view library_text);
// Of another rank's note, for one that has not noticed the failure itself.
PeerError noted_failure(const LanePlace& place, std::string_view operation, std::chrono::duration<double> elapsed,
                        const Monitor::Note& note);

// "unhandled system error, NCCL version 2.28.9: <its last error>": of the text of c10d's exception, without places in
// sources and stack traces.
std::string nccl_words(std::string_view text);
// Whether it tells of a peer, of the network to it, or of an abort; else the cause lies in this process.
bool is_about_peer(std::string_view text);

}  // namespace ringfold
