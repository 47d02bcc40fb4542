// The planner inside a program of your own: lengths in, plan out.
// Command: examples/03_embed_planner/run.sh, which also states its last lines.
#include <cstdio>

#include "ringfold/base/error.h"
#include "ringfold/plan/plan.h"
#include "ringfold/plan/planner.h"
#include "ringfold/plan/settings.h"

namespace {

void print(const ringfold::Plan& plan) {
  int number = 0;
  for (const ringfold::MicroStep& micro_step : plan.micro_steps) {
    std::printf("micro-step %d:", number++);
    const char* separator = " ";
    for (const ringfold::PlannedGroup& group : micro_step.groups) {
      const int first = group.first_rank.value(), size = group.cp_size.value();
      std::printf("%sCP %d on ranks %d-%d (%lld tokens per GPU)", separator, size, first, first + size - 1,
                  static_cast<long long>(group.padded_tokens.front()));
      separator = ", ";
    }
    std::printf("\n");
  }
}

}  // namespace

int main() {
  ringfold::ParallelSettings settings;
  settings.world_size = 4;
  settings.dynamic_context_parallel = settings.use_dynamic_batch_size = settings.calculate_per_token_loss = true;
  settings.rollout_max_context_len = 2048;
  settings.max_tokens_per_gpu = 512;

  ringfold::PlanRequest request;
  request.topology = ringfold::derive_topology(settings);  // throws UsageError for settings that do not fit
  request.budget = request.topology.budget;
  for (const int64_t tokens : {2000, 1000, 1000, 500, 400, 300, 450, 350, 500, 300}) {
    request.samples.push_back({ringfold::SampleId(static_cast<int64_t>(request.samples.size())), tokens});
  }
  const ringfold::Result<ringfold::Plan> plan = ringfold::make_plan(request);
  if (!plan.ok()) return 1;
  print(plan.value());

  // Infeasible is no exception: a plan, or the reason why there is none.
  request.samples.front().tokens = 4096;
  std::printf("a sample of 4096 tokens: %s\n", ringfold::make_plan(request).ok() ? "planned" : "refused");
}
