#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "ringfold/base/error.h"
#include "ringfold/base/outside_text.h"
#include "ringfold/plan/plan.h"

namespace ringfold {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostRanks = int64_t{1} << 20;
constexpr int64_t kMostTokens = int64_t{1} << 40;
constexpr int64_t kLargestId = int64_t{1} << 50;
constexpr double kLongestUs = 1e15;  // thirty years
constexpr int kDeepest = 16;

class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  Plan read(const Json& json) {
    Plan plan;
    if (integer(json, "schema", 1, 1000) != Plan::kSchema) {
      fail("schema", fmt::format("got another version of the plan JSON, expected {}", Plan::kSchema));
    }
    Topology& t = plan.topology;
    t.policy = *named<CpPolicy>(json, "policy", {CpPolicy::kStatic, CpPolicy::kUniform, CpPolicy::kMixed});
    t.execution = *named<Execution>(json, "mode", {Execution::kLockstep, Execution::kFree});
    t.world_size = static_cast<int>(integer(json, "world_size", 1, kMostRanks));
    t.tp = static_cast<int>(integer(json, "tp", 1, kMostRanks));
    t.pp = static_cast<int>(integer(json, "pp", 1, kMostRanks));
    t.max_cp = static_cast<int>(integer(json, "max_cp", 1, kMostRanks));
    t.dp = static_cast<int>(integer(json, "dp", 1, kMostRanks));
    const int64_t lane = int64_t{t.dp} * t.max_cp;
    if (lane > kMostRanks || lane * t.tp > kMostRanks || lane * t.tp * t.pp != t.world_size) {
      fail("world_size", fmt::format("got {}, expected tp x pp x dp x max_cp", t.world_size));
    }
    plan.budget = t.budget = integer(json, "budget", 0, kMostTokens);
    for (const Json& step : list(json, "micro_steps")) plan.micro_steps.push_back(micro_step(step, t.lane_size()));
    summary(object(json, "summary"), plan.summary);
    return plan;
  }

 private:
  [[noreturn]] void fail(const char* key, const std::string& what) const {
    throw DataError(
        fmt::format("[plan] {}: {}: {}. Hint: plans are written by ringfold plan --json and ringfold train "
                    "--dump-plans; see docs/reference/plan_json.md",
                    where_, key, what));
  }

  const Json& member(const Json& json, const char* key) const {
    if (!json.is_object()) fail(key, "got no object around it, expected one");
    const auto found = json.find(key);
    if (found == json.end()) fail(key, "is missing");
    return *found;
  }
  const Json& object(const Json& json, const char* key) const {
    const Json& value = member(json, key);
    if (!value.is_object()) fail(key, "got something else, expected an object");
    return value;
  }
  const Json& list(const Json& json, const char* key) const {
    const Json& value = member(json, key);
    if (!value.is_array()) fail(key, "got something else, expected an array");
    return value;
  }
  int64_t integer_of(const Json& value, const char* key, int64_t least, int64_t most) const {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(most));
    if (!fits || value.get<int64_t>() < least || value.get<int64_t>() > most) {
      fail(key, fmt::format("got {}, expected an integer from {} to {}", printable(value.dump(-1, ' ', true), 40),
                            least, most));
    }
    return value.get<int64_t>();
  }
  int64_t integer(const Json& json, const char* key, int64_t least, int64_t most) const {
    return integer_of(member(json, key), key, least, most);
  }
  double number(const Json& json, const char* key, double most) const {
    const Json& value = member(json, key);
    if (!value.is_number() || !(value.get<double>() >= 0) || value.get<double>() > most) {
      fail(key, fmt::format("got {}, expected a number from 0 to {}", printable(value.dump(-1, ' ', true), 40), most));
    }
    return value.get<double>();
  }
  template <typename Enum>
  std::optional<Enum> named(const Json& json, const char* key, std::initializer_list<Enum> values) const {
    const Json& value = member(json, key);
    std::string expected;
    for (const Enum candidate : values) {
      if (value.is_string() && value.get_ref<const std::string&>() == to_string(candidate)) return candidate;
      expected += fmt::format("{}{}", expected.empty() ? "" : " or ", to_string(candidate));
    }
    fail(key, fmt::format("got {}, expected {}", printable(value.dump(-1, ' ', true), 40), expected));
  }

  MicroStep micro_step(const Json& json, int lane) {
    MicroStep step;
    int64_t next_rank = 0;
    for (const Json& group : list(json, "groups")) {
      step.groups.push_back(read_group(group, lane));
      const PlannedGroup& added = step.groups.back();
      if (added.first_rank.value() < next_rank) fail("ranks", "got groups that overlap or are not by first rank");
      next_rank = added.first_rank.value() + added.cp_size.value();
    }
    for (const Json& rank : list(json, "idle_ranks")) {
      step.idle_ranks.push_back(LaneRank{static_cast<int>(integer_of(rank, "idle_ranks", 0, lane - 1))});
    }
    return step;
  }

  PlannedGroup read_group(const Json& json, int lane) {
    PlannedGroup group;
    const auto c = static_cast<int>(integer(json, "cp_size", 1, lane));
    if (!std::has_single_bit(static_cast<unsigned>(c)))
      fail("cp_size", fmt::format("got {}, expected a power of two", c));
    group.cp_size = CpSize{c};
    const Json& ranks = list(json, "ranks");
    if (ranks.size() != static_cast<size_t>(c)) {
      fail("ranks", fmt::format("got {}, expected cp_size {}", ranks.size(), c));
    }
    for (int r = 0; r < c; ++r) {
      const auto rank = static_cast<int>(integer_of(ranks[static_cast<size_t>(r)], "ranks", 0, lane - 1));
      if (r == 0) group.first_rank = LaneRank{rank};
      if (group.first_rank.value() % c != 0 || rank != group.first_rank.value() + r) {
        fail("ranks", fmt::format("got rank {}, expected an aligned block of {}", rank, c));
      }
    }
    for (const Json& id : list(json, "samples")) {
      group.samples.push_back(SampleId{integer_of(id, "samples", 0, kLargestId)});
      if (!seen_.insert(group.samples.back().value()).second) {
        fail("samples", fmt::format("got sample {} twice", group.samples.back().value()));
      }
    }
    if (group.samples.empty()) fail("samples", "got a group without samples");
    group.real_tokens = tokens(json, "real_tokens", c);
    group.padded_tokens = tokens(json, "padded_tokens", c);
    if (group.samples.size() == 1) {
      group.lengths.push_back(0);
      for (const int64_t own : group.real_tokens) group.lengths[0] += own;
    }
    group.cost_us = number(json, "cost", kLongestUs);
    group.start_us = number(json, "start_us", kLongestUs);
    group.order = static_cast<int>(integer(json, "order", 0, INT32_MAX));
    return group;
  }

  std::vector<int64_t> tokens(const Json& json, const char* key, int c) const {
    std::vector<int64_t> values;
    for (const Json& value : list(json, key)) values.push_back(integer_of(value, key, 0, kMostTokens));
    if (values.size() != static_cast<size_t>(c)) {
      fail(key, fmt::format("got {} ranks, expected cp_size {}", values.size(), c));
    }
    return values;
  }

  void summary(const Json& json, PlanSummary& summary) const {
    summary.tokens = integer(json, "tokens", 0, INT64_MAX);
    summary.padding_waste = number(json, "padding_waste", kLongestUs);
    summary.makespan_us = number(json, "makespan", kLongestUs);
    summary.static_makespan_us = number(json, "static_makespan", kLongestUs);
    summary.lower_bound_us = number(json, "lower_bound", kLongestUs);
    const Json& shares = object(json, "cp_token_share");
    for (int64_t c = 1; shares.contains(std::to_string(c)) && c <= kMostRanks; c *= 2) {
      summary.cp_token_share.push_back(number(shares, std::to_string(c).c_str(), 1 + 1e-9));
    }
  }

  const std::string& where_;
  std::set<int64_t> seen_;
};

}  // namespace

Plan plan_from_json(const std::string& text, const std::string& where) {
  if (nested_deeper_than(text, kDeepest)) {
    throw DataError(
        fmt::format("[plan] {}: nested more than {} deep, expected a plan. Hint: plans are written by "
                    "ringfold plan --json",
                    where, kDeepest));
  }
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    throw DataError(
        fmt::format("[plan] {}: broken JSON, expected one object. Hint: plans are written by ringfold plan "
                    "--json and ringfold train --dump-plans; was the writer interrupted?",
                    where));
  }
  return Reader(where).read(json);
}

}  // namespace ringfold
