// The cost model as a small TOML file: what `ringfold bench --calibrate` writes and --cost-model FILE.toml reads
// (docs/reference/cost_model.md). The scheme of CP communication is not in it: --cp-comm-type says that.
#pragma once

#include <string>

#include "ringfold/plan/calibrate.h"
#include "ringfold/plan/cost_model.h"

namespace ringfold {

// Strict: every key once, none unknown, each value in its range. DataError names the file, the line, the key and the
// remedy. `file` stands in messages only.
CostModel parse_cost_model(const std::string& text, const std::string& file);
CostModel load_cost_model(const std::string& file);

// `comment` becomes the first line. Reading it back gives the same numbers to the last bit.
std::string cost_model_to_toml(const CostModel& model, const std::string& comment);
// The fitted model with what its fit was worth. RunError where the file cannot be written.
void save_calibration(const Calibration& calibration, const std::string& machine, const std::string& file);

// A file (its name ends in .toml), or one of the built-in models of plan/policy_names.h. UsageError for another name.
CostModel cost_model_of(const std::string& name_or_file);

}  // namespace ringfold
