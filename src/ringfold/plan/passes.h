// The passes of the `mixed` policy: each has a name, may be switched off by it, and can be watched from outside. The
// planner itself reads no clock: whoever watches brings one.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ringfold {

struct PassControl {
  std::vector<std::string> off;  // names of passes that are left out
  // Called after every pass that ran, with its name and the predicted time of the best plan so far in microseconds.
  // Only for measuring: the plan does not depend on it.
  std::function<void(std::string_view pass, double best_us)> after;

  bool runs(std::string_view pass) const;
};

// Every pass of either mode, in the order they run (docs/algorithms.md, "mixed").
const std::vector<std::string>& pass_names();

}  // namespace ringfold
