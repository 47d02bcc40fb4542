// Predicted time of `mixed` over the physical limit T*, on the six laws: a row a setting, and the means.
// Usage: planner_quality [seeds] [lockstep|free] [detail]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>

#include "workload.h"

namespace ringfold {
namespace {

// CPU time of this process: other work on the machine does not count.
double cpu_ms() {
  return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

struct Tally {
  double sum = 0, worst = 0;
  int settings = 0;
  void add(double value) { sum += value, worst = std::max(worst, value), ++settings; }
  double mean() const { return settings > 0 ? sum / settings : 0; }
};

struct Setting {
  double ratio = 0, over_bound = 0, speed_up = 0;
  double mean_ms = 0, worst_ms = 0, bound_ms = 0;
};

int print_table(int seeds, Execution execution, bool detail) {
  const CostModel cost = CostModel::qwen3_4b_h200();
  std::map<bool, Tally> ratio, speed_up, worst_ms;
  std::map<std::string, std::pair<double, int>> pass_ms;
  for (const LengthLawInfo& law : length_laws()) {
    if (law.law == LengthLaw::kMegatron) continue;
    for (const int lane : {8, 16, 64}) {
      for (const int64_t n : {64, 128, 256, 512}) {
        Setting setting;
        for (int seed = 0; seed < seeds; ++seed) {
          const auto lengths = draw_lengths(law.law, 1000 + static_cast<uint64_t>(seed), n);
          auto request = bench::request_for(lengths, law.law, lane, CpPolicy::kMixed, execution, cost);
          double last_ms = cpu_ms();
          request.passes.after = [&](std::string_view pass, double) {
            const double now_ms = cpu_ms();
            auto& [ms, runs] = pass_ms[std::string(pass)];
            ms += now_ms - last_ms;
            ++runs;
            last_ms = now_ms;
          };
          const double begin_ms = cpu_ms();
          const Plan plan = make_plan(request).value();
          const double ms = cpu_ms() - begin_ms;
          setting.bound_ms += plan.summary.lower_bound_us / 1e3 / seeds;
          setting.ratio += plan.summary.makespan_us / plan.summary.lower_bound_us / seeds;
          setting.speed_up += plan.summary.static_makespan_us / plan.summary.makespan_us / seeds;
          setting.mean_ms += ms / seeds;
          setting.worst_ms = std::max(setting.worst_ms, ms);
        }
        const bool many = n >= 8 * lane;
        ratio[many].add(setting.ratio);
        speed_up[many].add(setting.speed_up);
        worst_ms[many].add(setting.worst_ms);
        if (detail) {
          fmt::print("| {} | {} | {} | {:.0f} | {:.3f} | {:.2f} | {:.2f} | {:.2f} |\n", law.name, lane, n,
                     setting.bound_ms, setting.ratio, setting.speed_up, setting.mean_ms, setting.worst_ms);
        }
      }
    }
  }
  for (const bool many : {true, false}) {
    fmt::print("{} n/D {} 8: T/T* mean {:.4f} worst {:.4f}; over static by tokens {:.3f}x; worst plan {:.2f} ms\n",
               to_string(execution), many ? ">=" : "<", ratio[many].mean(), ratio[many].worst, speed_up[many].mean(),
               worst_ms[many].worst);
  }
  for (const auto& [pass, time] : pass_ms) fmt::print("  {:<10} {:.3f} ms\n", pass, time.first / time.second);
  return 0;
}

}  // namespace
}  // namespace ringfold

int main(int argc, char** argv) {
  const int seeds = argc > 1 ? std::atoi(argv[1]) : 10;
  const bool free = argc > 2 && std::string(argv[2]) == "free";
  return ringfold::print_table(seeds, free ? ringfold::Execution::kFree : ringfold::Execution::kLockstep, argc > 3);
}
