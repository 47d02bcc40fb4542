// Planning time by policy, execution, lane and samples.
#include <benchmark/benchmark.h>

#include "workload.h"

namespace ringfold {
namespace {

void plan(benchmark::State& state, LengthLaw law, CpPolicy policy, Execution execution) {
  const int lane = static_cast<int>(state.range(0));
  const auto request = bench::request_for(draw_lengths(law, 1000, state.range(1)), law, lane, policy, execution,
                                          CostModel::qwen3_4b_h200());
  for (auto _ : state) benchmark::DoNotOptimize(make_plan(request));
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"ranks", "samples"})->Unit(benchmark::kMillisecond);
  for (const int lane : {8, 64}) bench->Args({lane, 64})->Args({lane, 512});
  bench->Args({1024, 16384});
}

BENCHMARK_CAPTURE(plan, mm_mixed_lockstep, LengthLaw::kMultimodal, CpPolicy::kMixed, Execution::kLockstep)
    ->Apply(sizes);
BENCHMARK_CAPTURE(plan, mm_mixed_free, LengthLaw::kMultimodal, CpPolicy::kMixed, Execution::kFree)->Apply(sizes);
BENCHMARK_CAPTURE(plan, rl_mixed_lockstep, LengthLaw::kRollouts, CpPolicy::kMixed, Execution::kLockstep)->Apply(sizes);
BENCHMARK_CAPTURE(plan, rl_mixed_free, LengthLaw::kRollouts, CpPolicy::kMixed, Execution::kFree)->Apply(sizes);
BENCHMARK_CAPTURE(plan, wiki_mixed_lockstep, LengthLaw::kWikipedia, CpPolicy::kMixed, Execution::kLockstep)
    ->Apply(sizes);
BENCHMARK_CAPTURE(plan, wiki_mixed_free, LengthLaw::kWikipedia, CpPolicy::kMixed, Execution::kFree)->Apply(sizes);
BENCHMARK_CAPTURE(plan, mm_uniform, LengthLaw::kMultimodal, CpPolicy::kUniform, Execution::kLockstep)->Apply(sizes);
BENCHMARK_CAPTURE(plan, mm_static, LengthLaw::kMultimodal, CpPolicy::kStatic, Execution::kLockstep)->Apply(sizes);

}  // namespace
}  // namespace ringfold

BENCHMARK_MAIN();
