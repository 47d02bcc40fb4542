// What each rank did when, in one step: the plan beside measured times. `ringfold train` appends one record a step to
// RUN/timeline.jsonl (docs/reference/metrics.md); `ringfold report` draws it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ringfold/plan/plan.h"

namespace ringfold {

// Of one rank in one pack, microseconds since the ranks agreed on the step's plan.
struct PackTime {
  double start_us = 0;
  double end_us = 0;
};

struct StepTimeline {
  int64_t step = 0;    // 1-based
  double step_us = 0;  // the whole step on the wall, with reduction and update
  Plan plan;
  // Per lane rank: its packs in the order it ran them, which is the plan's.
  std::vector<std::vector<PackTime>> measured;
};

// Packs of the rank that has most.
int most_packs_of_a_rank(const Plan& plan);
// From times that the ranks of the lane put together: `times_us` is [rank][most_packs_of_a_rank][start, end], row after
// row; what a rank does not need is not read.
StepTimeline make_timeline(int64_t step, double step_us, const Plan& plan, std::span<const double> times_us);

// One line without its end: {"schema":1,"step":..,"step_us":..,"lengths":[..],"measured_us":[[start,end,..] per rank],
// "plan":{..}}; lengths are real tokens of the plan's samples, group after group.
std::string to_json_line(const StepTimeline& timeline);
// Back again, checked against its plan. DataError beginning with "[report] WHERE".
StepTimeline parse_timeline(const std::string& line, const std::string& where);

// One pack as its group ran it: from when the last rank joined until the last rank was done.
struct MeasuredGroup {
  const PlannedGroup* group = nullptr;
  std::vector<PackTime> ranks;
  double start_us = 0, end_us = 0;
};
std::vector<MeasuredGroup> measured_groups(const StepTimeline& timeline);
// When the last pack of the step was done; the part of the step that a plan predicts.
double packs_end_us(const StepTimeline& timeline);

}  // namespace ringfold
