#include "ringfold/plan/settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "ringfold/base/error.h"
#include "ringfold/base/pow2.h"

namespace ringfold {
namespace {

constexpr int64_t kMaxParallelSize = int64_t{1} << 20;
constexpr int64_t kMaxTokens = int64_t{1} << 40;

void check_range(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw UsageError(fmt::format(
      "{} is out of range: got {}, expected {} to {}. Hint: {}", name, value, std::max(low, int64_t{1}), high,
      low == 0 ? "leave the flag out where it is not wanted." : "give a whole number in that range."));
}

void check_ranges(const ParallelSettings& s) {
  check_range("world_size", s.world_size, 1, kMaxParallelSize);
  check_range("--tensor-model-parallel-size", s.tensor_model_parallel_size, 1, kMaxParallelSize);
  check_range("--pipeline-model-parallel-size", s.pipeline_model_parallel_size, 1, kMaxParallelSize);
  check_range("--context-parallel-size", s.context_parallel_size, 1, kMaxParallelSize);
  check_range("--rollout-max-context-len", s.rollout_max_context_len, 0, kMaxTokens);
  check_range("--max-tokens-per-gpu", s.max_tokens_per_gpu, 0, kMaxTokens);
  check_range("--log-probs-max-tokens-per-gpu", s.log_probs_max_tokens_per_gpu, 0, kMaxTokens);
}

void check_dynamic_companions(const ParallelSettings& s) {
  if (!s.dynamic_context_parallel) return;
  const auto require = [](bool given, std::string_view flag, std::string_view why) {
    if (given) return;
    throw UsageError(fmt::format(
        "--dynamic-context-parallel requires {}: got --dynamic-context-parallel without it ({}). Hint: add {}, "
        "or drop --dynamic-context-parallel.",
        flag.substr(0, flag.find(' ')), why, flag));
  };
  require(s.use_dynamic_batch_size, "--use-dynamic-batch-size", "CP sizes are chosen for packs of a token budget");
  require(s.rollout_max_context_len > 0, "--rollout-max-context-len N",
          "the longest prompt + response sets the largest CP size");
  require(s.max_tokens_per_gpu > 0, "--max-tokens-per-gpu N", "the budget of one GPU sets every CP size");
  require(s.calculate_per_token_loss, "--calculate-per-token-loss",
          "packs of different CP sizes add up only as token sums");
}

// Flags that would have no effect are refused rather than ignored.
void check_batching_flags(const ParallelSettings& s) {
  if (s.use_dynamic_batch_size && s.max_tokens_per_gpu == 0) {
    throw UsageError(
        "--use-dynamic-batch-size requires --max-tokens-per-gpu: got no token budget, expected one above 0. Hint: add "
        "--max-tokens-per-gpu N, or drop --use-dynamic-batch-size.");
  }
  const auto refuse_without_batching = [&](int64_t value, std::string_view flag) {
    if (value == 0 || s.use_dynamic_batch_size) return;
    throw UsageError(
        fmt::format("{} requires --use-dynamic-batch-size: got {} {} alone, where every pack would hold one sample "
                    "whatever the budget. "
                    "Hint: add --use-dynamic-batch-size, or drop {}.",
                    flag, flag, value, flag));
  };
  refuse_without_batching(s.max_tokens_per_gpu, "--max-tokens-per-gpu");
  refuse_without_batching(s.log_probs_max_tokens_per_gpu, "--log-probs-max-tokens-per-gpu");
}

void check_choices(const ParallelSettings& s, CpPolicy policy) {
  if (s.cp_policy_given && s.cp_policy != CpPolicy::kStatic && !s.dynamic_context_parallel) {
    const auto name = to_string(s.cp_policy);
    throw UsageError(fmt::format(
        "--cp-policy {} requires --dynamic-context-parallel: got --cp-policy {} without it, expected static. Hint: add "
        "--dynamic-context-parallel, or use --cp-policy static.",
        name, name));
  }
  if (s.execution_given && s.execution == Execution::kFree && s.pipeline_model_parallel_size > 1) {
    throw UsageError(
        fmt::format("--execution free does not go with --pipeline-model-parallel-size: got free with pp={}, expected "
                    "lockstep, because pipeline stages need the same micro-steps on every rank. Hint: use --execution "
                    "lockstep, or --pipeline-model-parallel-size 1.",
                    s.pipeline_model_parallel_size));
  }
  if (s.static_balance != PackBalance::kTokens && policy != CpPolicy::kStatic) {
    throw UsageError(fmt::format(
        "--static-balance {} belongs to --cp-policy static: got --cp-policy {}, expected static. Hint: use --cp-policy "
        "static, or leave --static-balance out.",
        s.static_balance == PackBalance::kWork ? "work" : "arrival", to_string(policy)));
  }
  if (!is_power_of_2(s.context_parallel_size)) {
    throw UsageError(fmt::format(
        "--context-parallel-size must be a power of two: got {}, expected 1, 2, 4, ... Hint: use {}, or let "
        "--dynamic-context-parallel derive it.",
        s.context_parallel_size, next_power_of_2(s.context_parallel_size)));
  }
}

int largest_power_in(int ranks) {
  return static_cast<int>(previous_power_of_2(ranks));
}

int64_t cp_need(int64_t context, int64_t budget) {
  return next_power_of_2(ceil_div(context, budget));
}

std::string derived_cp_text(const ParallelSettings& s, int64_t cp) {
  if (!s.dynamic_context_parallel) return fmt::format("cp={} (--context-parallel-size)", cp);
  return fmt::format("cp={} (derived: next_power_of_2(ceil(--rollout-max-context-len {} / --max-tokens-per-gpu {})))",
                     cp, s.rollout_max_context_len, s.max_tokens_per_gpu);
}

std::string smaller_cp_remedy(const ParallelSettings& s, int64_t replicas_and_cp, int64_t cp) {
  int64_t fits = cp;
  while (fits > 1 && (replicas_and_cp == 0 || replicas_and_cp % fits != 0)) fits /= 2;
  const bool helps = replicas_and_cp > 0 && fits < cp;
  if (!s.dynamic_context_parallel) {
    return helps ? fmt::format("lower --context-parallel-size (to {})", fits) : "lower --context-parallel-size";
  }
  if (!helps) return "raise --max-tokens-per-gpu (a larger budget makes cp smaller)";
  return fmt::format("raise --max-tokens-per-gpu (to {} or more: cp={})", ceil_div(s.rollout_max_context_len, fits),
                     fits);
}

void check_world(const ParallelSettings& s, int64_t cp) {
  const int64_t tp = s.tensor_model_parallel_size, pp = s.pipeline_model_parallel_size;
  const bool model_divides = s.world_size % tp == 0 && s.world_size / tp % pp == 0;
  const int64_t rest = model_divides ? s.world_size / tp / pp : 0;
  if (model_divides && rest % cp == 0) return;
  // In floating point because absurd flags overflow; below 2^53 the product prints exactly.
  const double product = static_cast<double>(tp) * static_cast<double>(pp) * static_cast<double>(cp);
  throw UsageError(fmt::format(
      "world_size must be a multiple of tp*pp*cp: got world_size={}, tp={}, pp={}, {}, so tp*pp*cp={:.0f}. Hint: start "
      "more "
      "ranks (a multiple of {:.0f}), lower --tensor-model-parallel-size or --pipeline-model-parallel-size, or {}.",
      s.world_size, tp, pp, derived_cp_text(s, cp), product, product, smaller_cp_remedy(s, rest, cp)));
}

// Every sample up to the context limit must fit the largest CP size, in both passes: known now, not at the first long
// sample.
void check_capacity(const ParallelSettings& s, int64_t budget, int64_t log_probs_budget, int64_t cp) {
  if (budget == 0 || s.rollout_max_context_len == 0) return;
  const int64_t context = s.rollout_max_context_len;
  if (cp_need(context, budget) > cp) {
    throw UsageError(fmt::format(
        "--rollout-max-context-len does not fit the budget: got {} tokens, expected at most --max-tokens-per-gpu {} x "
        "--context-parallel-size {} = {}. Hint: raise --max-tokens-per-gpu or --context-parallel-size, or add "
        "--dynamic-context-parallel.",
        context, budget, cp, budget * cp));
  }
  if (cp_need(context, log_probs_budget) > cp) {
    throw UsageError(fmt::format(
        "--log-probs-max-tokens-per-gpu would need a CP size above the largest: got {}, which needs "
        "cp = next_power_of_2(ceil(--rollout-max-context-len {} / {})) = {}, expected at most cp = {}, the largest "
        "size at --max-tokens-per-gpu {}. Hint: raise --log-probs-max-tokens-per-gpu to {} or more, or leave it out.",
        log_probs_budget, context, log_probs_budget, cp_need(context, log_probs_budget), cp, budget,
        ceil_div(context, cp)));
  }
}

// The largest power of two whose all-to-all groups the heads allow: it divides the query heads, and it divides the KV
// heads or is a multiple of them. 0: no limit. What holds for a size holds for every smaller one.
int64_t head_cp_limit(const ParallelSettings& s) {
  const HeadCounts& heads = s.heads;
  if (s.cp_comm_type != CpCommType::kA2a || heads.query == 0) return 0;
  const auto power_in = [](int64_t count) { return count & -count; };
  return is_power_of_2(heads.kv) ? power_in(heads.query) : std::min(power_in(heads.query), power_in(heads.kv));
}

void check_heads(const ParallelSettings& s, int64_t cp) {
  const int64_t limit = head_cp_limit(s);
  if (limit == 0 || cp <= limit) return;
  throw UsageError(fmt::format(
      "--cp-comm-type a2a splits the model's heads among the ranks of a group: got num_attention_heads={} and "
      "num_key_value_heads={} with {}, expected at most cp={}, which divides the query heads, and divides the KV heads "
      "or is a multiple of them. Hint: use --cp-comm-type p2p, or {}.",
      s.heads.query, s.heads.kv, derived_cp_text(s, cp), limit,
      s.dynamic_context_parallel
          ? fmt::format("raise --max-tokens-per-gpu to {} or more", ceil_div(s.rollout_max_context_len, limit))
          : fmt::format("lower --context-parallel-size to {}", limit)));
}

void note_derived(const ParallelSettings& s, Topology& t) {
  if (s.dynamic_context_parallel) {
    t.notes.push_back(
        fmt::format("largest CP size S = {} = next_power_of_2(ceil({} / {})): --rollout-max-context-len over "
                    "--max-tokens-per-gpu",
                    t.max_cp, t.max_context, t.budget));
    if (s.context_parallel_size_given) {
      t.notes.push_back(fmt::format("--context-parallel-size {} is overridden by S = {} (--dynamic-context-parallel)",
                                    s.context_parallel_size, t.max_cp));
    }
    if (!s.cp_policy_given) t.notes.push_back("--cp-policy uniform (default)");
    if (t.policy == CpPolicy::kMixed) {
      t.notes.push_back(
          t.widest_cp() < largest_power_in(t.lane_size())
              ? fmt::format("CP sizes up to {} instead of {}: --cp-comm-type a2a splits the model's {} query heads "
                            "and {} KV heads",
                            t.largest_cp(), largest_power_in(t.lane_size()), s.heads.query, s.heads.kv)
              : fmt::format("CP sizes up to {}: --cp-policy mixed may use the largest power of two in the lane of {} "
                            "ranks",
                            t.largest_cp(), t.lane_size()));
      if (!s.execution_given) {
        t.notes.push_back(t.execution == Execution::kFree ? "--execution free (default of --cp-policy mixed)"
                                                          : "--execution lockstep (pipeline stages need it)");
      }
    }
    if (t.budget >= t.max_context) {
      t.warnings.push_back(fmt::format(
          "dynamic CP degenerates to c = 1: --max-tokens-per-gpu {} holds the longest sample "
          "(--rollout-max-context-len "
          "{}) on one GPU. Lower --max-tokens-per-gpu for CP to matter, or drop --dynamic-context-parallel.",
          t.budget, t.max_context));
    }
  }
  t.notes.push_back(
      fmt::format("dp = {} = world_size {} / (tp {} * pp {} * cp {})", t.dp, t.world_size, t.tp, t.pp, t.max_cp));
  if (t.budget > 0 && s.log_probs_max_tokens_per_gpu == 0) {
    t.notes.push_back(
        fmt::format("--log-probs-max-tokens-per-gpu {} (default: --max-tokens-per-gpu)", t.log_probs_budget));
  }
}

}  // namespace

int Topology::widest_cp() const {
  const int in_lane = largest_power_in(lane_size());
  return head_cp_limit > 0 ? std::min(in_lane, head_cp_limit) : in_lane;
}

int Topology::largest_cp() const {
  return policy == CpPolicy::kMixed ? widest_cp() : max_cp;
}

std::string_view to_string(CpPolicy policy) {
  switch (policy) {
    case CpPolicy::kStatic:
      return "static";
    case CpPolicy::kUniform:
      return "uniform";
    case CpPolicy::kMixed:
      return "mixed";
  }
  return "?";
}

std::string_view to_string(Execution execution) {
  switch (execution) {
    case Execution::kLockstep:
      return "lockstep";
    case Execution::kFree:
      return "free";
  }
  return "?";
}

std::string_view to_string(CpCommType comm) {
  switch (comm) {
    case CpCommType::kP2p:
      return "p2p";
    case CpCommType::kAllGather:
      return "all_gather";
    case CpCommType::kA2a:
      return "a2a";
  }
  return "?";
}

Topology derive_topology(const ParallelSettings& settings) {
  const ParallelSettings& s = settings;
  check_ranges(s);
  check_dynamic_companions(s);
  check_batching_flags(s);
  const CpPolicy default_policy = s.dynamic_context_parallel ? CpPolicy::kUniform : CpPolicy::kStatic;
  const CpPolicy policy = s.cp_policy_given ? s.cp_policy : default_policy;
  check_choices(s, policy);

  const int64_t log_probs_budget =
      s.log_probs_max_tokens_per_gpu > 0 ? s.log_probs_max_tokens_per_gpu : s.max_tokens_per_gpu;
  const int64_t cp =
      s.dynamic_context_parallel ? cp_need(s.rollout_max_context_len, s.max_tokens_per_gpu) : s.context_parallel_size;
  check_world(s, cp);
  check_capacity(s, s.max_tokens_per_gpu, log_probs_budget, cp);
  check_heads(s, cp);

  Topology t;
  t.world_size = s.world_size;
  t.tp = s.tensor_model_parallel_size;
  t.pp = s.pipeline_model_parallel_size;
  t.max_cp = static_cast<int>(cp);
  t.dp = s.world_size / t.tp / t.pp / t.max_cp;
  t.budget = s.max_tokens_per_gpu;
  t.log_probs_budget = log_probs_budget;
  t.max_context = s.rollout_max_context_len;
  t.dynamic = s.dynamic_context_parallel;
  t.policy = policy;
  t.execution = policy == CpPolicy::kMixed && t.pp == 1 ? Execution::kFree : Execution::kLockstep;
  if (s.execution_given) t.execution = s.execution;
  t.static_balance = s.static_balance;
  t.cp_comm_type = s.cp_comm_type;
  // Heads beyond any lane are no limit.
  t.head_cp_limit = static_cast<int>(std::min(head_cp_limit(s), kMaxParallelSize));
  note_derived(s, t);
  return t;
}

}  // namespace ringfold
