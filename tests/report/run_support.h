// Runs for report tests: what train would leave in its folder.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "ringfold/plan/planner.h"
#include "ringfold/report/metrics.h"
#include "ringfold/report/timeline.h"

namespace ringfold::testing {

inline Plan plan_of(const std::vector<int64_t>& lengths, CpPolicy policy = CpPolicy::kMixed) {
  ParallelSettings s;
  s.world_size = 4;
  s.dynamic_context_parallel = s.use_dynamic_batch_size = s.calculate_per_token_loss = true;
  s.rollout_max_context_len = 4096;
  s.max_tokens_per_gpu = 1024;
  s.cp_policy = policy;
  s.cp_policy_given = true;
  PlanRequest request;
  request.topology = derive_topology(s);
  request.budget = request.topology.budget;
  for (size_t i = 0; i < lengths.size(); ++i) {
    request.samples.push_back({SampleId(static_cast<int64_t>(i)), lengths[i]});
  }
  return make_plan(request).value();
}

// Every pack took `slower` times its predicted time.
inline StepTimeline timeline_of(int64_t step, const Plan& plan, double slower = 1.1) {
  StepTimeline timeline{step, slower * plan.summary.makespan_us + 500, plan, {}};
  timeline.measured.resize(static_cast<size_t>(plan.topology.lane_size()));
  for (const MicroStep& micro_step : plan.micro_steps) {
    for (const PlannedGroup& group : micro_step.groups) {
      for (int r = 0; r < group.cp_size.value(); ++r) {
        timeline.measured[static_cast<size_t>(group.first_rank.value() + r)].push_back(
            {slower * group.start_us, slower * (group.start_us + group.cost_us)});
      }
    }
  }
  return timeline;
}

inline StepMetrics metrics_of(int64_t step, size_t samples) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.epoch = static_cast<double>(step) / 4;
  metrics.loss = 3.0 / static_cast<double>(step);
  metrics.samples.resize(samples);
  std::iota(metrics.samples.begin(), metrics.samples.end(), int64_t{0});
  metrics.tokens = 7200;
  metrics.cp_histogram = {{1, 4}, {4, 1}};
  metrics.cp_token_share = {{1, 0.25}, {4, 0.75}};
  metrics.budget_use = 0.8;
  metrics.idle_share = {0, 0.1, 0.2, 0.1};
  metrics.step_ms = 200;
  metrics.tokens_per_s = 36000;
  return metrics;
}

// A folder of its own, removed at the end.
class RunFolder {
 public:
  RunFolder() : path_(::testing::TempDir() + "ringfold_run_" + std::to_string(getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~RunFolder() { std::filesystem::remove_all(path_); }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  const std::string& path() const { return path_; }
  void append(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary | std::ios::app) << text;
  }

 private:
  std::string path_;
};

}  // namespace ringfold::testing
