// The pieces of the `mixed` policy: groups of different CP sizes that run at the same time. Lockstep plans are lists of
// shelves (micro-steps of packs, as high as their slowest pack); free plans are nested blocks of ranks that run queues.
// Internal to plan/. Algorithms: docs/algorithms.md, "mixed".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ringfold/plan/cost_table.h"

namespace ringfold {

struct Pack {
  int level = 0;  // CP size 2^level
  int64_t tokens = 0;
  int64_t attention_ns = 0;
  int64_t time_ns = 0;
  std::vector<int> samples;  // positions in the table's order, ascending: longest first
};

// Sums of these samples at a level.
Pack pack_of(const CostTable& table, int level, std::vector<int> samples);
// The load rule: within the budget, or one sample that exceeds it by its own padding only.
bool pack_fits(const CostTable& table, const Pack& pack);

struct Shelf {
  std::vector<Pack> packs;  // together at most as wide as the lane
  int64_t height_ns = 0;    // of the slowest pack

  void measure();  // height from the packs
};
using Shelves = std::vector<Shelf>;
int64_t total_ns(const Shelves& shelves);

// Which sizes a shelf may use, and whether a sample rather opens a pack than joins one.
struct FillRule {
  int least_level = 0;
  int most_level = 0;
  bool open_first = true;
};

// Fills one shelf greedily, tallest samples first, under a height. Keeps its scratch memory between fills.
class Filler {
 public:
  explicit Filler(const CostTable& table);

  struct Outcome {
    int64_t height_ns = 0;  // of the slowest pack, after ranks left over were put to use
    int64_t work_ns = 0;    // placed
    int placed = 0;
  };
  // `order`: ascending positions. The outcome is kept for take() until the next fill.
  Outcome fill(std::span<const int> order, int64_t height_ns, const FillRule& rule);
  Shelf take() const;
  // Of the last fill's order: what found no place.
  std::vector<int> left_over() const;

 private:
  struct Open {
    int level = 0, head = -1, tail = -1, count = 0;
    int64_t tokens = 0, attention_ns = 0, time_ns = 0;
  };
  bool open(int sample, int64_t height_ns, const FillRule& rule);
  bool join(int sample, int level, int64_t height_ns);
  bool place(int sample, int64_t height_ns, const FillRule& rule);
  size_t next_candidate(std::span<const int> order, size_t at, int64_t height_ns);
  void append(Open& pack, int sample);
  void use_free_ranks(const FillRule& rule);
  void halve(const Open& pack, Open& first, Open& second);
  void join_chains(const Open& first, const Open& second, Open& whole);
  Open doubled(const Open& pack) const;

  const CostTable& table_;
  std::vector<Open> packs_;
  std::vector<std::vector<int>> by_time_;  // per level: packs, ascending in time
  std::vector<int> next_;                  // chains of samples
  std::vector<int> left_;
  int free_ranks_ = 0;
  struct Room {
    int64_t tokens = 0, time_ns = 0;
  };
  std::vector<Room> room_;  // per level: the most that one of its packs has left
  bool room_is_stale_ = true;
};

// The least height that places all of `order` on one shelf, to 0.4 %; an empty shelf when none is found.
Shelf fill_all(Filler& filler, const CostTable& table, std::span<const int> order, const FillRule& rule);

// One way to cut a step into shelves.
struct ShelfVariant {
  FillRule rule;
  int extra_steps = -1;   // aim for that many more micro-steps than the budget forces; -1: no aim
  bool rich = false;      // try more heights
  double density = 0.98;  // share of the budget that is expected to be filled
  bool one_size = false;  // every pack of a shelf at the same level
  double yield = 0;  // 0: shelves by work a rank and time; else by the least time lost against shelves of this yield
};
std::vector<ShelfVariant> shelf_variants(const CostTable& table);
// Empty once the plan is sure to exceed the limit.
Shelves fill_shelves(Filler& filler, const CostTable& table, const ShelfVariant& variant, int64_t limit_ns);

// Local search: moves, swaps and merges that lower the sum of heights; the budget counts pack evaluations.
void improve(const CostTable& table, Shelves& shelves, int64_t budget);
// Removes one micro-step if that lowers the sum; whether it did.
bool dissolve(Filler& filler, const CostTable& table, Shelves& shelves);

// A free plan: per level, widest first, and per aligned block of 2^level ranks the packs it runs one after another.
struct NestedPlan {
  std::vector<int> levels;                         // of every sample
  std::vector<std::vector<std::vector<Pack>>> at;  // [level][block]
  int64_t time_ns = 0;                             // of the busiest rank
};
NestedPlan nest(const CostTable& table, const std::vector<int>& levels);
// The level of every sample by a time limit, as a share of the bound; sizes up to `most_level`.
std::vector<int> levels_within(const CostTable& table, double share, int most_level);
// The best over several limits.
NestedPlan best_nested(const CostTable& table);
// Changes the CP size of samples on the busiest rank while that lowers the time; at most `tries` new plans.
void escalate(const CostTable& table, NestedPlan& plan, int tries);

Draft to_draft(const CostTable& table, const Shelves& shelves);
Draft to_draft(const CostTable& table, const NestedPlan& plan);

}  // namespace ringfold
