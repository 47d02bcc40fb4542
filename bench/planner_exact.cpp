// How far `mixed` is from the best plan there is, on instances small enough to try everything.
#include <fmt/format.h>

#include <algorithm>

#include "ringfold/plan/exact.h"
#include "workload.h"

namespace ringfold {
namespace {

struct Gap {
  double sum = 0, worst = 0;
  int cases = 0, optimal = 0;
};

PackInput pack_input(const PlanRequest& request) {
  PackInput input;
  for (const SampleLength& sample : request.samples) input.lengths.push_back(sample.tokens);
  input.dp = request.topology.dp;
  input.max_cp = request.topology.max_cp;
  input.budget = request.budget;
  input.cost = &request.cost;
  return input;
}

Gap gap_of(int lane, Execution execution, int samples, int seeds) {
  const CostModel cost = CostModel::qwen3_4b_h200();
  Gap gap;
  for (const LengthLaw law : {LengthLaw::kMultimodal, LengthLaw::kRollouts, LengthLaw::kMoon, LengthLaw::kMegatron}) {
    for (int seed = 0; seed < seeds; ++seed) {
      const auto request = bench::request_for(draw_lengths(law, 500 + static_cast<uint64_t>(seed), samples), law, lane,
                                              CpPolicy::kMixed, execution, cost);
      const double over = make_plan(request).value().summary.makespan_us / exact_us(pack_input(request), execution) - 1;
      gap.sum += over;
      gap.worst = std::max(gap.worst, over);
      gap.optimal += over < 1e-6 ? 1 : 0;
      ++gap.cases;
    }
  }
  return gap;
}

}  // namespace
}  // namespace ringfold

int main() {
  using namespace ringfold;
  fmt::print(
      "| execution | ranks | samples | cases | optimal | mean gap | worst gap |\n|---|---|---|---|---|---|---|\n");
  for (const Execution execution : {Execution::kLockstep, Execution::kFree}) {
    for (const int lane : {4, 8}) {
      for (const int samples : {4, 6, 8, 10}) {
        const Gap gap = gap_of(lane, execution, samples, 20);
        fmt::print("| {} | {} | {} | {} | {} | {:.2f} % | {:.1f} % |\n", to_string(execution), lane, samples, gap.cases,
                   gap.optimal, 100 * gap.sum / gap.cases, 100 * gap.worst);
      }
    }
  }
}
