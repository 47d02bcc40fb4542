// Simulated speed-up over dp_balanced packing on Megatron's public dynamic-CP workload, beside its published figures,
// in both readings of "8 micro-batches": 8 full packs, or 8 samples, a data-parallel rank. And the 1,024-rank stress.
#include <fmt/format.h>

#include "ringfold/plan/cost_table.h"
#include "workload.h"

namespace ringfold {
namespace {

constexpr int kSeeds = 10;

struct Ratios {
  double arrival = 0, mixed = 0, over_bound = 0, arrival_ms = 0;
};

double over_bound(const PlanRequest& request, double makespan_us) {
  PackInput input;
  for (const SampleLength& sample : request.samples) input.lengths.push_back(sample.tokens);
  input.dp = request.topology.dp;
  input.max_cp = request.topology.max_cp;
  input.budget = request.budget;
  input.cost = &request.cost;
  const CostTable table(input);
  const bool free = request.topology.execution == Execution::kFree;
  return makespan_us * 1e3 / static_cast<double>(free ? table.free_bound_ns() : table.lockstep_bound_ns());
}

// Mixed over dp_balanced in lockstep, which is how Megatron runs it.
Ratios compare(int ranks, bool full_packs, Execution execution) {
  const LengthLawInfo& law = info_of(LengthLaw::kMegatron);
  const int64_t dp = ranks / 4;
  Ratios sum;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto lengths =
        full_packs ? draw_tokens(law.law, seed, 8 * 4 * law.budget_tokens * dp) : draw_lengths(law.law, seed, 8 * dp);
    auto request =
        bench::request_for(lengths, law.law, ranks, CpPolicy::kMixed, execution, CostModel::megatron_small_h200());
    const double mixed_us = make_plan(request).value().summary.makespan_us;
    sum.over_bound += over_bound(request, mixed_us) / kSeeds;
    request.topology.policy = CpPolicy::kStatic;
    request.topology.static_balance = PackBalance::kArrival;
    request.topology.execution = Execution::kLockstep;
    const double arrival_us = make_plan(request).value().summary.makespan_us;
    sum.mixed += arrival_us / mixed_us / kSeeds;
    sum.arrival_ms += arrival_us / 1e3 / kSeeds;
  }
  return sum;
}

void stress() {
  fmt::print("\n| law | T/T* lockstep | over its bound | T/T* free | over its bound |\n|---|---|---|---|---|\n");
  for (const LengthLaw law : {LengthLaw::kMultimodal, LengthLaw::kRollouts, LengthLaw::kWikipedia}) {
    fmt::print("| {} |", info_of(law).name);
    for (const Execution execution : {Execution::kLockstep, Execution::kFree}) {
      double ratio = 0, bound = 0;
      for (uint64_t seed = 0; seed < 3; ++seed) {
        const auto request = bench::request_for(draw_lengths(law, 1000 + seed, 16384), law, 1024, CpPolicy::kMixed,
                                                execution, CostModel::qwen3_4b_h200());
        const Plan plan = make_plan(request).value();
        ratio += plan.summary.makespan_us / plan.summary.lower_bound_us / 3;
        bound += over_bound(request, plan.summary.makespan_us) / 3;
      }
      fmt::print(" {:.3f} | {:.3f} |", ratio, bound);
    }
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace ringfold

int main() {
  using namespace ringfold;
  constexpr double kPublished[] = {1.285, 1.412, 1.212, 1.375, 1.495};
  for (const bool full_packs : {true, false}) {
    fmt::print(
        "\n8 {} a data-parallel rank\n\n| GPUs | published | dp_balanced ms | mixed lockstep | over its bound | "
        "mixed free | over its bound |\n|---|---|---|---|---|---|---|\n",
        full_packs ? "full packs" : "samples");
    for (int i = 0; i < 5; ++i) {
      const int ranks = 4 << i;
      const Ratios lockstep = compare(ranks, full_packs, Execution::kLockstep);
      const Ratios free = compare(ranks, full_packs, Execution::kFree);
      fmt::print("| {} | {:.3f} | {:.0f} | {:.2f}x | {:.3f} | {:.2f}x | {:.3f} |\n", ranks, kPublished[i],
                 lockstep.arrival_ms, lockstep.mixed, lockstep.over_bound, free.mixed, free.over_bound);
    }
  }
  stress();
}
