// Ranks and axes. Rank order: tp fastest, then cp, then dp, then pp. A lane is the dp x cp ranks that share one
// (tp, pp) coordinate; inside it lane rank = dp_index * max_cp + cp_index.
#pragma once

#include <vector>

#include "ringfold/base/ids.h"

namespace ringfold {

struct MeshCoordinates {
  int tp = 0;
  int cp = 0;
  int dp = 0;
  int pp = 0;
};

class MeshShape {
 public:
  MeshShape(int tp, int cp, int dp, int pp);
  int world_size() const { return tp_ * cp_ * dp_ * pp_; }
  int lane_size() const { return cp_ * dp_; }
  MeshCoordinates coordinates_of(Rank rank) const;
  Rank rank_at(const MeshCoordinates& at) const;
  LaneRank lane_rank_of(Rank rank) const;
  // World ranks of the lane that holds `rank`, by lane rank.
  std::vector<Rank> lane_of(Rank rank) const;

 private:
  int tp_, cp_, dp_, pp_;
};

// The ranks that hold the shards of one pack: an aligned power-of-two block of the lane, seen from one member. A value:
// copying it costs nothing and it touches no communicator.
struct CpGroup {
  LaneRank first{0};
  int size = 1;
  int index = 0;  // own position, 0 .. size-1

  LaneRank member(int i) const { return LaneRank(first.value() + i); }
  bool is_single() const { return size == 1; }
};

}  // namespace ringfold
