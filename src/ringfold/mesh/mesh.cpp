#include "ringfold/mesh/mesh.h"

#include <fmt/format.h>

#include "ringfold/base/error.h"

namespace ringfold {

MeshShape::MeshShape(int tp, int cp, int dp, int pp) : tp_(tp), cp_(cp), dp_(dp), pp_(pp) {
  RINGFOLD_ASSERT(tp > 0 && cp > 0 && dp > 0 && pp > 0, fmt::format("mesh tp={} cp={} dp={} pp={}", tp, cp, dp, pp));
}

MeshCoordinates MeshShape::coordinates_of(Rank rank) const {
  int rest = rank.value();
  RINGFOLD_ASSERT(rest >= 0 && rest < world_size(), fmt::format("rank {} of {}", rest, world_size()));
  MeshCoordinates at;
  at.tp = rest % tp_;
  rest /= tp_;
  at.cp = rest % cp_;
  rest /= cp_;
  at.dp = rest % dp_;
  at.pp = rest / dp_;
  return at;
}

Rank MeshShape::rank_at(const MeshCoordinates& at) const {
  return Rank(((at.pp * dp_ + at.dp) * cp_ + at.cp) * tp_ + at.tp);
}

LaneRank MeshShape::lane_rank_of(Rank rank) const {
  const MeshCoordinates at = coordinates_of(rank);
  return LaneRank(at.dp * cp_ + at.cp);
}

std::vector<Rank> MeshShape::lane_of(Rank rank) const {
  MeshCoordinates at = coordinates_of(rank);
  std::vector<Rank> lane;
  for (at.dp = 0; at.dp < dp_; ++at.dp) {
    for (at.cp = 0; at.cp < cp_; ++at.cp) lane.push_back(rank_at(at));
  }
  return lane;
}

}  // namespace ringfold
