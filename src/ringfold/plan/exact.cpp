#include "ringfold/plan/exact.h"

#include <bit>
#include <limits>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using Mask = unsigned;
using Table = std::vector<double>;  // by subset of samples
constexpr double kNever = std::numeric_limits<double>::infinity();

class Exhaustion {
 public:
  explicit Exhaustion(const PackInput& input)
      : lane_(input.dp * input.max_cp), subsets_(Mask{1} << input.lengths.size()) {
    RINGFOLD_ASSERT(input.lengths.size() <= kMostExactSamples, "exhaustion is for a few samples");
    RINGFOLD_ASSERT(std::has_single_bit(static_cast<unsigned>(lane_)), "exhaustion is for lanes of a power of two");
    for (int c = 1; c <= lane_; c *= 2) packs_.push_back(pack_times(input, c));
  }

  double lockstep() const {
    // shelf[w][m]: least height of subset m side by side on w ranks.
    std::vector<Table> shelf(static_cast<size_t>(lane_) + 1, Table(subsets_, kNever));
    for (auto& heights : shelf) heights[0] = 0;
    for (size_t width = 1; width < shelf.size(); ++width) {
      for (Mask all = 1; all < subsets_; ++all) {
        for_each_part(all, [&](Mask part) {
          for (size_t level = 0; level < packs_.size() && (size_t{1} << level) <= width; ++level) {
            const double height = std::max(packs_[level][part], shelf[width - (size_t{1} << level)][all ^ part]);
            shelf[width][all] = std::min(shelf[width][all], height);
          }
        });
      }
    }
    return in_sequence(shelf.back())[subsets_ - 1];
  }

  double free() const {
    // block[m]: least time of subset m on an aligned block of the level, wider packs apart.
    Table block = in_sequence(packs_[0]);
    for (size_t level = 1; level < packs_.size(); ++level) {
      Table halves(subsets_, kNever);
      for (Mask all = 0; all < subsets_; ++all) {
        for (Mask part = all;; part = (part - 1) & all) {
          halves[all] = std::min(halves[all], std::max(block[part], block[all ^ part]));
          if (part == 0) break;
        }
      }
      const Table own = in_sequence(packs_[level]);
      for (Mask all = 0; all < subsets_; ++all) {
        block[all] = kNever;
        for (Mask part = all;; part = (part - 1) & all) {
          block[all] = std::min(block[all], own[part] + halves[all ^ part]);
          if (part == 0) break;
        }
      }
    }
    return block[subsets_ - 1];
  }

 private:
  // Time of every subset as one pack; never where the load rule forbids it.
  Table pack_times(const PackInput& input, int c) const {
    Table times(subsets_, kNever);
    for (Mask set = 1; set < subsets_; ++set) {
      std::vector<int> items;
      std::vector<int64_t> lengths, vision_tokens;
      for (size_t i = 0; i < input.lengths.size(); ++i) {
        if ((set >> i & 1u) == 0) continue;
        items.push_back(static_cast<int>(i));
        lengths.push_back(input.lengths[i]);
        vision_tokens.push_back(vision_of(input, items.back()));
      }
      const bool allowed = input.widest_cp == 0 || c <= input.widest_cp;
      if (allowed && load_holds(input, items, c)) times[set] = input.cost->pack_us(lengths, CpSize{c}, vision_tokens);
    }
    return times;
  }

  // Parts of a set that hold its lowest sample: enough, because some part does.
  template <typename Body>
  static void for_each_part(Mask all, Body&& body) {
    const Mask lowest = all & (~all + 1), others = all ^ lowest;
    for (Mask part = others;; part = (part - 1) & others) {
      body(part | lowest);
      if (part == 0) break;
    }
  }

  // Least sum of parts.
  Table in_sequence(const Table& part_us) const {
    Table total(subsets_, kNever);
    total[0] = 0;
    for (Mask all = 1; all < subsets_; ++all) {
      for_each_part(all, [&](Mask part) { total[all] = std::min(total[all], part_us[part] + total[all ^ part]); });
    }
    return total;
  }

  int lane_;
  Mask subsets_;
  std::vector<Table> packs_;  // by level
};

}  // namespace

double exact_us(const PackInput& input, Execution execution) {
  const Exhaustion exhaustion(input);
  return execution == Execution::kFree ? exhaustion.free() : exhaustion.lockstep();
}

}  // namespace ringfold
