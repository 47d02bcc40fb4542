// Settings of an objective that do not go together.
#pragma once

#include "ringfold/train/settings.h"

namespace ringfold {

// UsageError naming the flags, their values and the remedy: a flag that would have no effect, two that exclude each
// other, a value out of range.
void check_objective(const RunSettings& settings);

}  // namespace ringfold
