#include "ringfold/train/advantages.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "ringfold/base/error.h"

namespace ringfold {

Advantages group_advantages(const Dataset& data) {
  std::map<std::string, std::vector<size_t>> groups;  // ordered, so that every rank sums alike
  for (size_t i = 0; i < data.samples.size(); ++i) {
    const Sample& sample = data.samples[i];
    if (!sample.reward || !sample.group) {
      throw DataError(
          fmt::format("[data] {}:{} (sample {}): --objective grpo needs the field `{}`. Hint: give `reward` and "
                      "`group` (prompt id) "
                      "for every sample, or use --objective sft",
                      data.file, sample.line, sample.id.value(), sample.reward ? "group" : "reward"));
    }
    groups[*sample.group].push_back(i);
  }
  Advantages result;
  result.per_sample.assign(data.samples.size(), 0.0);
  result.groups = static_cast<int64_t>(groups.size());
  for (const auto& [name, members] : groups) {
    const auto count = static_cast<double>(members.size());
    double mean = 0;
    for (const size_t i : members) mean += *data.samples[i].reward / count;
    double squares = 0;
    for (const size_t i : members) squares += std::pow(*data.samples[i].reward - mean, 2);
    if (members.size() < 2) {
      ++result.single_groups;
      continue;
    }
    if (squares == 0) ++result.flat_groups;
    const double deviation = std::sqrt(squares / (count - 1));
    for (const size_t i : members) result.per_sample[i] = (*data.samples[i].reward - mean) / (deviation + 1e-6);
  }
  return result;
}

}  // namespace ringfold
