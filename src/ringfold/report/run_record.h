// A run's folder read back: what `ringfold train` left in it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ringfold/report/metrics.h"
#include "ringfold/report/timeline.h"

namespace ringfold {

struct RunRecord {
  std::string name;                             // the folder's
  std::vector<StepMetrics> steps;               // metrics.jsonl, by step; of a step written twice the last record
  std::vector<EvalMetrics> evals;               // eval.jsonl
  std::vector<StepTimeline> timelines;          // timeline.jsonl, by step
  std::vector<std::pair<int64_t, Plan>> plans;  // plan_step_N.json, by step
  std::vector<std::string> notes;               // what was left out: a last line that is not whole
};

// One record of metrics.jsonl; null is NaN. Keys that are not known are left alone: a later version may write more.
StepMetrics parse_step_metrics(const std::string& line, const std::string& where);
EvalMetrics parse_eval_metrics(const std::string& line, const std::string& where);

// UsageError for a folder without metrics.jsonl; DataError with file and line for what cannot be read. A last line
// without its end is of a run that still writes, or was killed: it is left out and noted.
RunRecord load_run(const std::string& folder);

}  // namespace ringfold
