// Predicted time of a pack on a rank: linear + quadratic (by chunk length) + exposed communication + vision + fixed.
// Formula and constants: docs/algorithms.md, "Cost model". A value: from the shape of a model (on_h200), or fitted to
// measurements (calibrate.h) and kept in a file (report/cost_model_file.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ringfold/base/ids.h"
#include "ringfold/plan/settings.h"

namespace ringfold {

// What predicted times need of a model.
struct ModelShape {
  double active_parameters = 0;  // that a token meets, head included
  int layers = 0;
  double query_width = 0;  // heads x head size
  double kv_width = 0;     // KV heads x head size
  int kv_heads = 0;
};

struct CostModel {
  double fixed_us = 0;                    // per pack: launches, embedding and head set-up
  double us_per_token = 0;                // forward + backward, everything linear in tokens
  double attention_flops_per_token2 = 0;  // forward + backward FLOPs per L^2 (causal), all layers
  // Attention rate by chunk length L / c: log-interpolated, proportional to the length below the first entry.
  std::vector<double> rate_length_tokens;
  std::vector<double> rate_flops_per_us;
  // What travels. A ring's hops hide under attention; gathered keys and values, and heads, are waited for.
  CpCommType comm = CpCommType::kP2p;
  int layers = 0;
  double kv_bytes_per_token_layer = 0;     // K and V of one token in one layer, as sent
  double query_bytes_per_token_layer = 0;  // its queries, all heads: only all-to-all sends them
  int kv_heads = 0;  // all-to-all sends each to several ranks where the group is larger; 0: it never is
  // A group of more than `node_size` ranks spans nodes: its slowest hop sets the pace.
  int node_size = 8;
  double hop_latency_us = 0;
  double node_bytes_per_us = 0;
  double cross_node_hop_latency_us = 0;
  double cross_node_bytes_per_us = 0;
  double us_per_vision_token = 0;  // vision tower, forward + backward; the group shares it. 0: a text model

  // Time of one pack of samples with these real lengths on c ranks; vision tokens of each, or none at all.
  double pack_us(std::span<const int64_t> lengths, CpSize c, std::span<const int64_t> vision_tokens = {}) const;
  // The same from sums that a search keeps up to date: tokens (with pads), attention and vision time of each rank.
  double pack_us(int64_t rank_tokens, double attention_us, CpSize c, double vision_us = 0) const;
  // Attention time of one sample on each of the c ranks that share it.
  double attention_us(int64_t length, CpSize c) const;
  // Time of the vision tower for so many tokens on each of the c ranks that share them.
  double vision_us(int64_t vision_tokens, CpSize c) const;
  // FLOPs per us at a chunk length of L / c tokens.
  double attention_rate(double length_tokens) const;

  struct Hop {
    double latency_us = 0;
    double bytes_per_us = 0;
  };
  Hop hop(CpSize c) const;  // of a group of c ranks
  // Traffic of one layer that is waited for, forward and backward: hops of a pass in latencies and in units of the
  // rank's own KV, and the share of the attention time that they hide under.
  struct Traffic {
    double forward_hops = 0, backward_hops = 0;
    double forward_kv = 0, backward_kv = 0;
    double hidden_share = 0;
  };
  Traffic traffic(CpSize c) const;

  // From a model's shape, for H200s in nodes of 8.
  static CostModel on_h200(const ModelShape& shape);
  // Shapes on H200s: a dense model of 4e9 parameters (the default of `ringfold plan`), a mixture of experts with 3.3e9
  // active ones, and the small model of Megatron's public dynamic-CP benchmark.
  static CostModel qwen3_4b_h200();
  static CostModel qwen3_30b_a3b_h200();
  static CostModel megatron_small_h200();
};

// T*: no plan of these samples on `lane_size` ranks is predicted faster. The largest of: all work spread evenly; the
// slowest sample at its best CP size; the micro-steps that the budget forces (docs/algorithms.md, "Lower bound").
double lower_bound_us(std::span<const int64_t> lengths, int lane_size, int64_t budget, const CostModel& cost,
                      std::span<const int64_t> vision_tokens = {});

}  // namespace ringfold
