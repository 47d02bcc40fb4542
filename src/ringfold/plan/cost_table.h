// The cost model as integer tables over the samples of one step, for searches that price packs by the million: whole
// nanoseconds, rounded once, so that comparing two plans is exact. Internal to plan/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ringfold/plan/draft.h"

namespace ringfold {

// What one sample adds to a pack on 2^level ranks, to each of them.
struct SampleCost {
  int64_t tokens = 0;        // padded(L, c) / c
  int64_t attention_ns = 0;  // attention and vision: hops seem to hide under both, a little more than they do
  int64_t marginal_ns = 0;   // linear part and attention, without communication
  int64_t alone_ns = 0;      // time of a pack of this sample only
};

// Samples are known by their position in the order (longest first, then input order), the only order a search uses.
class CostTable {
 public:
  explicit CostTable(const PackInput& input);

  int samples() const { return static_cast<int>(order_.size()); }
  int levels() const { return levels_; }  // CP sizes 1, 2, ... 2^(levels - 1): the widest group
  int lane() const { return lane_; }
  int64_t budget() const { return budget_; }
  int static_level() const { return static_level_; }  // S = 2^level
  int node_level() const { return node_level_; }      // the largest size that stays in a node, at least S
  int64_t fixed_ns() const { return fixed_ns_; }
  int item(int sample) const { return order_[static_cast<size_t>(sample)]; }  // its index in PackInput::lengths

  int64_t length(int sample) const { return lengths_[static_cast<size_t>(sample)]; }
  // The least level whose c * budget holds the sample's real tokens.
  int need(int sample) const { return need_[static_cast<size_t>(sample)]; }
  // Linear part and attention at the least level, over all ranks.
  int64_t work_ns(int sample) const { return work_ns_[static_cast<size_t>(sample)]; }
  const SampleCost& cost(int sample, int level) const {
    return costs_[static_cast<size_t>(sample) * static_cast<size_t>(levels_) + static_cast<size_t>(level)];
  }
  // Least time of the sample alone, over the levels up to `most`.
  int64_t least_alone_ns(int sample, int most) const;

  // Time of a pack from its sums.
  int64_t pack_ns(int level, int64_t tokens, int64_t attention_ns) const {
    const LevelCost& c = level_costs_[static_cast<size_t>(level)];
    const int64_t compute = fixed_ns_ + tokens * linear_ps_ / 1000 + attention_ns;
    if (level == 0) return compute;
    const int64_t hidden = attention_ns * c.hidden_q20 >> 20;  // of forward and backward together
    const int64_t hops = tokens * c.hop_ps / 1000;
    const int64_t forward = c.forward_latency_ns + hops - hidden * 2 / 7;
    const int64_t backward = c.backward_latency_ns + c.backward_hops * hops - hidden * 5 / 7;
    return compute + std::max<int64_t>(0, forward) + std::max<int64_t>(0, backward);
  }

  // Time below which no plan can be, and below which no plan of lockstep micro-steps can be (docs/algorithms.md,
  // "Lower bounds").
  int64_t free_bound_ns() const { return free_bound_ns_; }
  int64_t lockstep_bound_ns() const { return lockstep_bound_ns_; }
  // All work spread evenly, and the slowest sample at its best size: the two parts of T* that shape a plan.
  int64_t compute_bound_ns() const { return compute_bound_ns_; }
  int64_t longest_bound_ns() const { return longest_bound_ns_; }

 private:
  struct LevelCost {
    int64_t forward_latency_ns = 0, backward_latency_ns = 0;  // of all hops of a pass, all layers
    int64_t hop_ps = 0;                                       // per token of a rank, all hops of a forward pass
    int64_t backward_hops = 0;                                // of a backward pass, in forward passes
    int64_t hidden_q20 = 0;  // share of the attention time that hops can hide under, in 2^-20
  };

  void fill_levels(const CostModel& cost);
  void fill_samples(const PackInput& input);
  void find_bounds();
  // Least work over all ranks of all samples, when no pack may last longer than this.
  double work_within(int64_t limit_ns) const;

  int levels_ = 1, lane_ = 1, static_level_ = 0, node_level_ = 0;
  int64_t budget_ = 0, fixed_ns_ = 0, linear_ps_ = 0;
  int64_t free_bound_ns_ = 0, lockstep_bound_ns_ = 0, compute_bound_ns_ = 0, longest_bound_ns_ = 0;
  std::vector<int> order_, need_;
  std::vector<int64_t> lengths_, work_ns_;
  std::vector<SampleCost> costs_;
  std::vector<LevelCost> level_costs_;
};

}  // namespace ringfold
