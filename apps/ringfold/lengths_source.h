// Where `plan` and `simulate` get sample lengths and the number of ranks from.
#pragma once

#include <string>
#include <vector>

#include "commands.h"
#include "ringfold/mesh/launch_env.h"
#include "ringfold/plan/length_laws.h"
#include "ringfold/plan/plan.h"

namespace ringfold {

struct Lengths {
  std::vector<SampleLength> samples;
  std::string skipped;  // what was left out and why; empty: nothing
};

// The law of --law; null for none.
const LengthLawInfo* law_named(const std::string& name);
// From --law, or exactly one of --lengths, --lengths-file and --data, of which samples above `limit` tokens (0: none)
// are refused, or left out with --skip-bad-samples.
Lengths load_lengths_of(const RunSettings& settings, const CommandOptions& options, int64_t limit);
// --world-size, or the launcher's.
int world_size_of(const RunSettings& settings, const CommandOptions& options, const LaunchEnv& env);
// The samples of one global batch, `step` 1-based.
std::vector<SampleLength> batch_of(const std::vector<SampleLength>& samples, const RunSettings& settings, int64_t step);

}  // namespace ringfold
