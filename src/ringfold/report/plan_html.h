// One page that shows a plan: who runs what and when, coloured by CP size, beside static CP. Self-contained: inline SVG
// and CSS, no script, nothing fetched; light and dark by the reader's setting.
#pragma once

#include <string>
#include <vector>

#include "ringfold/plan/plan.h"

namespace ringfold {

struct PlanPage {
  struct PolicyTime {
    std::string name;
    double step_us = 0;
    bool shown = false;  // it is this page's plan
  };
  const Plan& plan;
  Plan baseline;                     // static CP, on the same samples and ranks
  std::vector<PolicyTime> policies;  // predicted step time of every policy, for the bar chart
};

// HTML, UTF-8.
std::string plan_to_html(const PlanPage& page);

}  // namespace ringfold
