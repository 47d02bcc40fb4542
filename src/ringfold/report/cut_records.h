// Bringing a run's records back to the step that it resumes from, so that no step is in them twice.
#pragma once

#include <cstdint>
#include <string>

namespace ringfold {

// A .jsonl file of records with a "step" (metrics.jsonl, eval.jsonl), or with another number under `key`: cuts the file
// before the first record of a later one, or before a line that a crash left half written. A file that does not exist
// is left so. RunError names the file.
void cut_records_after(const std::string& path, int64_t last, const std::string& key = "step");

// The same for every TensorBoard event file of a folder. Events of rollouts (`rl`) count rollouts instead of steps.
void cut_events_after(const std::string& folder, int64_t step, int64_t rollout = 0);

}  // namespace ringfold
