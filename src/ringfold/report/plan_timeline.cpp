#include "ringfold/report/plan_timeline.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringfold {

using drawing::duration;
using drawing::level_of;
using drawing::with_thousands;

size_t widest_level(const Plan& plan) {
  size_t most = 0;
  for (const MicroStep& step : plan.micro_steps) {
    for (const PlannedGroup& group : step.groups) most = std::max(most, level_of(group.cp_size));
  }
  return most;
}

std::vector<int64_t> packs_by_level(const Plan& plan, size_t levels) {
  std::vector<int64_t> packs(std::max(levels, widest_level(plan) + 1), 0);
  for (const MicroStep& step : plan.micro_steps) {
    for (const PlannedGroup& group : step.groups) ++packs[level_of(group.cp_size)];
  }
  return packs;
}

double predicted_idle_share(const Plan& plan) {
  double busy = 0;
  for (const MicroStep& step : plan.micro_steps) {
    for (const PlannedGroup& group : step.groups) busy += group.cost_us * group.cp_size.value();
  }
  const double all = plan.summary.makespan_us * plan.topology.lane_size();
  return all > 0 ? 1 - busy / all : 0;
}

std::string describe_group(const PlannedGroup& group, int64_t budget, const std::string& times) {
  constexpr size_t kIdsShown = 10;
  const int c = group.cp_size.value(), first = group.first_rank.value();
  std::string text =
      c > 1 ? fmt::format("CP {} on ranks {}-{}", c, first, first + c - 1) : fmt::format("CP 1 on rank {}", first);
  text += fmt::format(", {}\n{} tokens per GPU", times, with_thousands(group.padded_tokens[0]));
  if (budget > 0) {
    text += fmt::format(" ({:.0f} % of the budget)",
                        100.0 * static_cast<double>(group.padded_tokens[0]) / static_cast<double>(budget));
  }
  for (size_t i = 0; i < std::min(group.samples.size(), kIdsShown); ++i) {
    text += fmt::format("\nsample {}", group.samples[i].value());
    if (i < group.lengths.size()) text += fmt::format(": {} tokens", with_thousands(group.lengths[i]));
  }
  if (group.samples.size() > kIdsShown) text += fmt::format("\n... {} more", group.samples.size() - kIdsShown);
  return text;
}

drawing::Timeline predicted_timeline(const Plan& plan, double limit_us) {
  drawing::Timeline timeline;
  timeline.ranks = plan.topology.lane_size();
  timeline.end_us = plan.summary.makespan_us;
  timeline.limit_us = limit_us;
  for (const MicroStep& step : plan.micro_steps) {
    for (const PlannedGroup& group : step.groups) {
      const double end_us = group.start_us + group.cost_us;
      const std::string times = fmt::format("{} to {}", duration(group.start_us), duration(end_us));
      timeline.boxes.push_back({group.first_rank.value(), group.cp_size.value(), group.start_us, end_us, group.cp_size,
                                describe_group(group, plan.budget, times)});
    }
  }
  return timeline;
}

}  // namespace ringfold
