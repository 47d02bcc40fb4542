// A plan as pictures and as a trace: what plan_html, run_html and the Chrome trace have in common.
#pragma once

#include <string>
#include <vector>

#include "ringfold/plan/plan.h"
#include "ringfold/report/drawing.h"

namespace ringfold {

// The largest CP size in the plan, as its logarithm.
size_t widest_level(const Plan& plan);
// Packs at each CP size 2^i; at least `levels` entries.
std::vector<int64_t> packs_by_level(const Plan& plan, size_t levels = 0);
// Share of the ranks' time, up to the makespan, that no pack fills.
double predicted_idle_share(const Plan& plan);
// "CP 2 on ranks 4-5", budget use, samples: what a box tells. `times` stands behind the ranks.
std::string describe_group(const PlannedGroup& group, int64_t budget, const std::string& times);
// As predicted. `limit_us`: 0 for none.
drawing::Timeline predicted_timeline(const Plan& plan, double limit_us);

}  // namespace ringfold
