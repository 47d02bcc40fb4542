// What the user asked for about parallelism, and what follows from it. Pure: no I/O, no clock, no environment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringfold {

enum class CpPolicy { kStatic, kUniform, kMixed };
enum class Execution { kLockstep, kFree };
enum class CpCommType { kP2p, kAllGather, kA2a };
// What `static` balances: tokens; work, the stronger baseline; or nothing, packs filled in arrival order.
enum class PackBalance { kTokens, kWork, kArrival };

std::string_view to_string(CpPolicy policy);
std::string_view to_string(Execution execution);
std::string_view to_string(CpCommType comm);

// Attention heads of a model: query heads, and KV heads that divide them. 0: not known.
struct HeadCounts {
  int64_t query = 0;
  int64_t kv = 0;
};

// One member a flag (`--max-tokens-per-gpu` ...); 0 or unset means "not given". Token counts are real tokens.
struct ParallelSettings {
  int world_size = 1;
  int tensor_model_parallel_size = 1;
  int pipeline_model_parallel_size = 1;
  int context_parallel_size = 1;
  bool context_parallel_size_given = false;
  bool dynamic_context_parallel = false;
  bool use_dynamic_batch_size = false;
  bool calculate_per_token_loss = false;
  int64_t rollout_max_context_len = 0;       // longest sample that is accepted
  int64_t max_tokens_per_gpu = 0;            // b: budget of a rank after the split, per micro-step
  int64_t log_probs_max_tokens_per_gpu = 0;  // the same for forward-only passes; defaults to b
  CpPolicy cp_policy = CpPolicy::kUniform;
  bool cp_policy_given = false;
  bool execution_given = false;
  Execution execution = Execution::kLockstep;  // not given: free for `mixed` without pipeline, else lockstep
  PackBalance static_balance = PackBalance::kTokens;
  CpCommType cp_comm_type = CpCommType::kP2p;
  HeadCounts heads;  // of the model, where there is one: all-to-all splits them
};

// The layout that follows. Rank order: tp fastest, then cp, dp, pp. A lane is the dp x cp ranks of one (tp, pp).
struct Topology {
  int world_size = 1;
  int tp = 1;
  int pp = 1;
  int dp = 1;
  int max_cp = 1;                // S
  int64_t budget = 0;            // b; 0: no budget, every pack holds one sample
  int64_t log_probs_budget = 0;  // of forward-only passes
  int64_t max_context = 0;       // longest sample accepted; 0: no limit
  bool dynamic = false;          // CP sizes are chosen per micro-batch
  CpPolicy policy = CpPolicy::kStatic;
  Execution execution = Execution::kLockstep;
  PackBalance static_balance = PackBalance::kTokens;
  CpCommType cp_comm_type = CpCommType::kP2p;
  int head_cp_limit = 0;              // the largest all-to-all group that the model's heads allow; 0: no limit
  std::vector<std::string> notes;     // what was derived or overridden, for the start-up table
  std::vector<std::string> warnings;  // e.g. dynamic CP that degenerates to c = 1

  int lane_size() const { return dp * max_cp; }  // D
  // The largest group that may run: the largest power of two in the lane, within the limit of the heads.
  int widest_cp() const;
  // The largest CP size that a plan may use: S, or for `mixed` the widest group.
  int largest_cp() const;
};

// Derives the topology (spec 2). Throws UsageError with flag names, values and the remedy: a missing companion flag of
// --dynamic-context-parallel, a world size that does not divide, a log-prob budget that needs a CP size above S, free
// execution of a pipeline, heads that all-to-all cannot split among S ranks.
Topology derive_topology(const ParallelSettings& settings);

}  // namespace ringfold
