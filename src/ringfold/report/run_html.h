// One page that shows a run: loss and throughput, what each rank did in a step, predicted beside measured, CP sizes,
// budget use, and what static CP would have cost. Self-contained (drawing.h).
#pragma once

#include <cstdint>
#include <string>

#include "ringfold/plan/cost_model.h"
#include "ringfold/report/run_record.h"

namespace ringfold {

struct RunPage {
  const RunRecord& run;
  int64_t step = 0;  // whose ranks are drawn; 0: the last one that left a timeline or a plan
  CostModel cost;    // that the run planned with: static CP is drawn where its predictions agree with the plan's
};

// HTML, UTF-8. UsageError for a step that left neither timeline nor plan.
std::string run_to_html(const RunPage& page);

}  // namespace ringfold
