#include "ringfold/report/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ringfold {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPredicted = 0, kMeasured = 1;  // process ids

class Trace {
 public:
  // Names of a process and of its ranks, in order.
  void name_process(int process, const char* name, int ranks) {
    add_name("process_name", process, 0, name);
    for (int r = 0; r < ranks; ++r) add_name("thread_name", process, r, fmt::format("rank {}", r));
  }

  void add_pack(int process, const PlannedGroup& group, int rank, double start_us, double end_us, int64_t step) {
    Json samples = Json::array();
    for (const SampleId id : group.samples) samples.push_back(id.value());
    Json args = {{"cp_size", group.cp_size.value()},
                 {"tokens_per_gpu", group.padded_tokens.front()},
                 {"predicted_us", group.cost_us},
                 {"samples", std::move(samples)}};
    if (!group.lengths.empty()) args["lengths"] = group.lengths;
    if (step > 0) args["step"] = step;
    const size_t count = group.samples.size();
    events_.push_back({{"name", fmt::format("CP {}: {} sample{}", group.cp_size.value(), count, count == 1 ? "" : "s")},
                       {"cat", "pack"},
                       {"ph", "X"},
                       {"ts", start_us},
                       {"dur", end_us - start_us},
                       {"pid", process},
                       {"tid", rank},
                       {"args", std::move(args)}});
  }

  void add_plan(const Plan& plan, double origin_us, int64_t step) {
    for (const MicroStep& micro_step : plan.micro_steps) {
      for (const PlannedGroup& group : micro_step.groups) {
        const double start_us = origin_us + group.start_us;
        for (int r = 0; r < group.cp_size.value(); ++r) {
          add_pack(kPredicted, group, group.first_rank.value() + r, start_us, start_us + group.cost_us, step);
        }
      }
    }
  }

  std::string text() { return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events_)}}.dump(); }

 private:
  void add_name(const char* what, int process, int thread, const std::string& name) {
    events_.push_back({{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}});
  }

  Json events_ = Json::array();
};

}  // namespace

std::string chrome_trace(const Plan& plan) {
  Trace trace;
  trace.name_process(kPredicted, "predicted", plan.topology.lane_size());
  trace.add_plan(plan, 0, 0);
  return trace.text();
}

std::string chrome_trace(std::span<const StepTimeline> steps) {
  Trace trace;
  int ranks = 0;
  for (const StepTimeline& step : steps) ranks = std::max(ranks, step.plan.topology.lane_size());
  trace.name_process(kPredicted, "predicted", ranks);
  trace.name_process(kMeasured, "measured", ranks);
  double origin_us = 0;
  for (const StepTimeline& step : steps) {
    trace.add_plan(step.plan, origin_us, step.step);
    for (const MeasuredGroup& measured : measured_groups(step)) {
      for (size_t r = 0; r < measured.ranks.size(); ++r) {
        trace.add_pack(kMeasured, *measured.group, measured.group->first_rank.value() + static_cast<int>(r),
                       origin_us + measured.ranks[r].start_us, origin_us + measured.ranks[r].end_us, step.step);
      }
    }
    origin_us += std::max({step.step_us, packs_end_us(step), step.plan.summary.makespan_us});
  }
  return trace.text();
}

}  // namespace ringfold
