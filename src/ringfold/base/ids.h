// Strong integer types, so that a rank is never taken for a size or a sample.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace ringfold {

template <typename Tag, typename Rep>
class StrongInt {
 public:
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  constexpr auto operator<=>(const StrongInt&) const = default;

 private:
  Rep value_ = 0;
};

using Rank = StrongInt<struct RankTag, int>;              // a process in the whole job (world rank)
using LaneRank = StrongInt<struct LaneRankTag, int>;      // a position inside the lane, 0 .. D-1
using CpSize = StrongInt<struct CpSizeTag, int>;          // ranks in a CP group; a power of two
using SampleId = StrongInt<struct SampleIdTag, int64_t>;  // 0-based over the file's non-blank lines

}  // namespace ringfold

template <typename Tag, typename Rep>
struct std::hash<ringfold::StrongInt<Tag, Rep>> {
  size_t operator()(const ringfold::StrongInt<Tag, Rep>& id) const { return std::hash<Rep>()(id.value()); }
};
