// Predicted time of a pack on a rank: linear + quadratic (by chunk length) + exposed communication + fixed.
// Formula and constants: planner study, section 2 of the design notes (docs/algorithms.md, "Cost model").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ringfold/base/ids.h"

namespace ringfold {

struct CostModel {
  double fixed_us = 0;                    // per pack: launches, embedding and head set-up
  double us_per_token = 0;                // forward + backward, everything linear in tokens
  double attention_flops_per_token2 = 0;  // forward + backward FLOPs per L^2 (causal), all layers
  // Attention rate by chunk length L / c: log-interpolated, proportional to the length below the first entry.
  std::vector<double> rate_length_tokens;
  std::vector<double> rate_flops_per_us;
  int layers = 0;
  double kv_bytes_per_token_layer = 0;  // K and V of one token in one layer, as sent
  double hop_latency_us = 0;
  double node_bytes_per_us = 0;  // inside a node of `node_size` ranks
  double cross_node_bytes_per_us = 0;
  int node_size = 8;

  // Time of one pack of samples with these real lengths on c ranks.
  double pack_us(std::span<const int64_t> lengths, CpSize c) const;
  // The same from sums that a search keeps up to date: tokens (with pads) and attention time of each rank.
  double pack_us(int64_t rank_tokens, double attention_us, CpSize c) const;
  // Attention time of one sample on each of the c ranks that share it.
  double attention_us(int64_t length, CpSize c) const;
  // FLOPs per us at a chunk length of L / c tokens.
  double attention_rate(double length_tokens) const;

  // Shapes on H200s: a dense model of 4e9 parameters (the default of `ringfold plan`), a mixture of experts with 3.3e9
  // active ones, and the small model of Megatron's public dynamic-CP benchmark.
  static CostModel qwen3_4b_h200();
  static CostModel qwen3_30b_a3b_h200();
  static CostModel megatron_small_h200();
};

// T*: no plan of these samples on `lane_size` ranks is predicted faster. The largest of: all work spread evenly; the
// slowest sample at its best CP size; the micro-steps that the budget forces (docs/algorithms.md, "Lower bound").
double lower_bound_us(std::span<const int64_t> lengths, int lane_size, int64_t budget, const CostModel& cost);

}  // namespace ringfold
