#include "ringfold/mesh/mesh.h"

#include <gtest/gtest.h>

#include <set>

namespace ringfold {
namespace {

TEST(MeshShape, tp_is_fastest_then_cp_then_dp_then_pp) {
  const MeshShape shape(2, 4, 3, 2);
  EXPECT_EQ(shape.world_size(), 48);
  const MeshCoordinates at = shape.coordinates_of(Rank(1 + 2 * (3 + 4 * (2 + 3 * 1))));
  EXPECT_EQ(at.tp, 1);
  EXPECT_EQ(at.cp, 3);
  EXPECT_EQ(at.dp, 2);
  EXPECT_EQ(at.pp, 1);
}

TEST(MeshShape, every_rank_has_its_own_coordinates) {
  const MeshShape shape(2, 4, 3, 2);
  for (int rank = 0; rank < shape.world_size(); ++rank) {
    EXPECT_EQ(shape.rank_at(shape.coordinates_of(Rank(rank))), Rank(rank));
  }
}

TEST(MeshShape, lanes_cut_the_world_into_disjoint_parts_in_lane_rank_order) {
  const MeshShape shape(2, 4, 3, 2);
  std::set<Rank> seen;
  for (int rank = 0; rank < shape.world_size(); ++rank) {
    const auto lane = shape.lane_of(Rank(rank));
    ASSERT_EQ(static_cast<int>(lane.size()), shape.lane_size());
    EXPECT_EQ(lane[shape.lane_rank_of(Rank(rank)).value()], Rank(rank));
    for (int i = 0; i < shape.lane_size(); ++i) EXPECT_EQ(shape.lane_rank_of(lane[i]), LaneRank(i));
    if (shape.lane_rank_of(Rank(rank)) == LaneRank(0)) seen.insert(lane.begin(), lane.end());
  }
  EXPECT_EQ(static_cast<int>(seen.size()), shape.world_size());
}

TEST(MeshShape, without_tp_and_pp_the_lane_is_the_world) {
  const MeshShape shape(1, 4, 2, 1);
  const auto lane = shape.lane_of(Rank(5));
  ASSERT_EQ(lane.size(), 8U);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(lane[i], Rank(i));
}

TEST(CpGroup, members_are_consecutive_lane_ranks) {
  const CpGroup group{LaneRank(4), 2, 1};
  EXPECT_EQ(group.member(0), LaneRank(4));
  EXPECT_EQ(group.member(group.index), LaneRank(5));
  EXPECT_FALSE(group.is_single());
  EXPECT_TRUE(CpGroup{}.is_single());
}

}  // namespace
}  // namespace ringfold
