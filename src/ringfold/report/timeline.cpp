#include "ringfold/report/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ringfold/base/error.h"
#include "ringfold/base/outside_text.h"

namespace ringfold {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSchema = 1;
constexpr double kLongestUs = 1e15;
constexpr int64_t kMostTokens = int64_t{1} << 40;
constexpr int kDeepest = 18;

// Tenths of a microsecond are finer than any clock here.
double rounded_us(double us) {
  return std::round(us * 10) / 10;
}

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw DataError(fmt::format("[report] {}: {}. Hint: ringfold train writes this file; see docs/reference/metrics.md",
                              where, what));
}

const Json& member(const Json& json, const char* key, const std::string& where) {
  const auto found = json.find(key);
  if (found == json.end()) fail(where, fmt::format("{} is missing from the timeline record", key));
  return *found;
}

double number(const Json& value, const char* key, const std::string& where) {
  if (!value.is_number() || !(value.get<double>() >= 0) || value.get<double>() > kLongestUs) {
    fail(where,
         fmt::format("{}: got {}, expected a number of at least 0", key, printable(value.dump(-1, ' ', true), 40)));
  }
  return value.get<double>();
}

int64_t integer(const Json& value, const char* key, const std::string& where) {
  const double as_double = number(value, key, where);
  if (!value.is_number_integer()) fail(where, fmt::format("{}: got {}, expected an integer", key, as_double));
  return value.get<int64_t>();
}

std::vector<size_t> packs_by_rank(const Plan& plan) {
  std::vector<size_t> packs(static_cast<size_t>(plan.topology.lane_size()), 0);
  for (const MicroStep& step : plan.micro_steps) {
    for (const PlannedGroup& group : step.groups) {
      for (int r = 0; r < group.cp_size.value(); ++r) ++packs[static_cast<size_t>(group.first_rank.value() + r)];
    }
  }
  return packs;
}

std::vector<PlannedGroup*> groups_of(Plan& plan) {
  std::vector<PlannedGroup*> groups;
  for (MicroStep& step : plan.micro_steps) {
    for (PlannedGroup& group : step.groups) groups.push_back(&group);
  }
  return groups;
}

// A group's tokens a GPU follow from its lengths, so that wrong lengths are seen.
void set_lengths(Plan& plan, const Json& lengths, const std::string& where) {
  if (!lengths.is_array()) fail(where, "lengths: got something else, expected an array");
  size_t at = 0;
  for (PlannedGroup* group : groups_of(plan)) {
    group->lengths.clear();
    int64_t real = 0, total = 0;
    for (size_t i = 0; i < group->samples.size(); ++i, ++at) {
      if (at == lengths.size()) fail(where, fmt::format("lengths: got {}, expected one for each sample", at));
      group->lengths.push_back(integer(lengths[at], "lengths", where));
      if (group->lengths.back() > kMostTokens) fail(where, fmt::format("lengths: got {}", group->lengths.back()));
      total += group->lengths.back();
    }
    for (const int64_t own : group->real_tokens) real += own;
    if (real != total) {
      fail(where, fmt::format("lengths: got {} tokens in a pack of {}, expected as many", total, real));
    }
  }
  if (at != lengths.size()) fail(where, fmt::format("lengths: got {}, expected {} samples", lengths.size(), at));
}

std::vector<std::vector<PackTime>> read_times(const Json& ranks, const Plan& plan, const std::string& where) {
  const int lane = plan.topology.lane_size();
  if (!ranks.is_array() || ranks.size() != static_cast<size_t>(lane)) {
    fail(where, fmt::format("measured_us: expected an array of {} ranks", lane));
  }
  std::vector<std::vector<PackTime>> measured(static_cast<size_t>(lane));
  const std::vector<size_t> packs = packs_by_rank(plan);
  for (size_t r = 0; r < measured.size(); ++r) {
    if (!ranks[r].is_array() || ranks[r].size() != 2 * packs[r]) {
      fail(where, fmt::format("measured_us: rank {}: expected start and end of its {} packs", r, packs[r]));
    }
    for (size_t p = 0; p < packs[r]; ++p) {
      measured[r].push_back(
          {number(ranks[r][2 * p], "measured_us", where), number(ranks[r][2 * p + 1], "measured_us", where)});
      if (measured[r][p].end_us < measured[r][p].start_us) {
        fail(where, fmt::format("measured_us: rank {}: got a pack that ends before it starts", r));
      }
    }
  }
  return measured;
}

}  // namespace

int most_packs_of_a_rank(const Plan& plan) {
  const std::vector<size_t> packs = packs_by_rank(plan);
  return packs.empty() ? 0 : static_cast<int>(*std::max_element(packs.begin(), packs.end()));
}

StepTimeline make_timeline(int64_t step, double step_us, const Plan& plan, std::span<const double> times_us) {
  const auto width = 2 * static_cast<size_t>(most_packs_of_a_rank(plan));
  const std::vector<size_t> packs = packs_by_rank(plan);
  RINGFOLD_ASSERT(times_us.size() == packs.size() * width, "a row of times for each rank of the lane");
  StepTimeline timeline{step, step_us, plan, {}};
  for (size_t r = 0; r < packs.size(); ++r) {
    const auto row = times_us.subspan(r * width, width);
    timeline.measured.emplace_back();
    for (size_t p = 0; p < packs[r]; ++p) timeline.measured.back().push_back({row[2 * p], row[2 * p + 1]});
  }
  return timeline;
}

std::string to_json_line(const StepTimeline& timeline) {
  nlohmann::ordered_json lengths = nlohmann::ordered_json::array(), ranks = nlohmann::ordered_json::array();
  for (const MicroStep& step : timeline.plan.micro_steps) {
    for (const PlannedGroup& group : step.groups) {
      for (const int64_t length : group.lengths) lengths.push_back(length);
    }
  }
  for (const auto& packs : timeline.measured) {
    nlohmann::ordered_json times = nlohmann::ordered_json::array();
    for (const PackTime& time : packs) {
      times.push_back(rounded_us(time.start_us));
      times.push_back(rounded_us(time.end_us));
    }
    ranks.push_back(std::move(times));
  }
  const nlohmann::ordered_json record = {{"schema", kSchema},
                                         {"step", timeline.step},
                                         {"step_us", rounded_us(timeline.step_us)},
                                         {"lengths", std::move(lengths)},
                                         {"measured_us", std::move(ranks)},
                                         {"plan", nlohmann::ordered_json::parse(plan_to_json(timeline.plan))}};
  return record.dump();
}

StepTimeline parse_timeline(const std::string& line, const std::string& where) {
  if (nested_deeper_than(line, kDeepest)) fail(where, fmt::format("nested more than {} deep", kDeepest));
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail(where, "broken JSON, expected one object");
  if (integer(member(json, "schema", where), "schema", where) != kSchema) {
    fail(where, fmt::format("schema: got another version of the timeline record, expected {}", kSchema));
  }
  StepTimeline timeline;
  timeline.step = integer(member(json, "step", where), "step", where);
  timeline.step_us = number(member(json, "step_us", where), "step_us", where);
  timeline.plan = plan_from_json(member(json, "plan", where).dump(-1, ' ', true), where);
  set_lengths(timeline.plan, member(json, "lengths", where), where);
  timeline.measured = read_times(member(json, "measured_us", where), timeline.plan, where);
  return timeline;
}

std::vector<MeasuredGroup> measured_groups(const StepTimeline& timeline) {
  std::vector<MeasuredGroup> groups;
  std::vector<size_t> next(timeline.measured.size(), 0);
  for (const MicroStep& step : timeline.plan.micro_steps) {
    for (const PlannedGroup& group : step.groups) {
      MeasuredGroup measured{&group, {}, 0, 0};
      for (int r = 0; r < group.cp_size.value(); ++r) {
        const auto rank = static_cast<size_t>(group.first_rank.value() + r);
        measured.ranks.push_back(timeline.measured[rank][next[rank]++]);
        measured.start_us = std::max(measured.start_us, measured.ranks.back().start_us);
        measured.end_us = std::max(measured.end_us, measured.ranks.back().end_us);
      }
      groups.push_back(std::move(measured));
    }
  }
  return groups;
}

double packs_end_us(const StepTimeline& timeline) {
  double end_us = 0;
  for (const auto& packs : timeline.measured) {
    for (const PackTime& time : packs) end_us = std::max(end_us, time.end_us);
  }
  return end_us;
}

}  // namespace ringfold
