// The one wording of a lost or silent peer, whichever backend noticed it.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "ringfold/base/error.h"
#include "ringfold/base/ids.h"

namespace ringfold {

// Where this process stands in its lane.
struct LanePlace {
  LaneRank self;
  std::vector<Rank> world_ranks;  // by lane rank
  std::chrono::milliseconds timeout;

  int size() const { return static_cast<int>(world_ranks.size()); }
  std::string name(LaneRank lane_rank) const;  // "rank 5 (lane rank 1)"
};

// `who` is the peer, or "a peer" where the backend does not tell; `library_text` is what the backend said.
PeerError peer_failure(const LanePlace& place, std::string_view who, std::string_view operation,
                       std::chrono::duration<double> elapsed, std::string_view library_text);

}  // namespace ringfold
