#include "ringfold/report/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <type_traits>

#include "ringfold/base/error.h"
#include "ringfold/base/outside_text.h"

namespace ringfold {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 16;

class Record {
 public:
  Record(const std::string& line, const std::string& where) : where_(where) {
    if (nested_deeper_than(line, kDeepest)) fail("nested too deep, expected a record of a step");
    json_ = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json_.is_object()) fail("broken JSON, expected one object a line");
  }

  // null, as train writes what is not finite, is NaN.
  double number(const char* key) const {
    const Json& value = member(key);
    if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!value.is_number()) fail(fmt::format("{}: got {}, expected a number", key, shown(value)));
    return value.get<double>();
  }
  std::optional<double> optional_number(const char* key) const {
    return json_.contains(key) ? std::optional(number(key)) : std::nullopt;
  }
  int64_t integer(const char* key) const { return integer_of(member(key), key); }
  std::vector<int64_t> integers(const char* key) const {
    const Json& value = member(key);
    if (!value.is_array()) fail(fmt::format("{}: got {}, expected an array of integers", key, shown(value)));
    std::vector<int64_t> values;
    for (const Json& item : value) values.push_back(integer_of(item, key));
    return values;
  }
  std::vector<double> numbers(const char* key) const {
    const Json& value = member(key);
    if (!value.is_array()) fail(fmt::format("{}: got {}, expected an array of numbers", key, shown(value)));
    std::vector<double> values;
    for (const Json& item : value) {
      if (!item.is_number() && !item.is_null()) fail(fmt::format("{}: got {}, expected a number", key, shown(item)));
      values.push_back(item.is_null() ? std::numeric_limits<double>::quiet_NaN() : item.get<double>());
    }
    return values;
  }
  template <typename T>
  std::map<int, T> by_cp_size(const char* key) const {
    const Json& value = member(key);
    if (!value.is_object()) fail(fmt::format("{}: got {}, expected an object by CP size", key, shown(value)));
    std::map<int, T> values;
    for (const auto& [name, item] : value.items()) {
      int size = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), size);
      const bool is_size = error == std::errc() && end == name.data() + name.size() && size > 0 &&
                           std::has_single_bit(static_cast<unsigned>(size));
      const bool is_value = std::is_integral_v<T> ? item.is_number_integer() : item.is_number();
      if (!is_size || !is_value) {
        fail(
            fmt::format("{}: got {}: {}, expected a number for a power of two", key, printable(name, 40), shown(item)));
      }
      values[size] = item.template get<T>();
    }
    return values;
  }

 private:
  int64_t integer_of(const Json& value, const char* key) const {
    const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
    if (!fits) fail(fmt::format("{}: got {}, expected an integer", key, shown(value)));
    return value.get<int64_t>();
  }
  static std::string shown(const Json& value) { return printable(value.dump(-1, ' ', true), 40); }
  const Json& member(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail(fmt::format("{} is missing from the record", key));
    return *found;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(fmt::format("[report] {}: {}. Hint: ringfold train writes this file; see docs/reference/metrics.md",
                                where_, what));
  }

  const std::string& where_;
  Json json_;
};

// Calls `take` with each whole line and its place. False if the file is not there.
bool for_each_line(const std::string& file, std::vector<std::string>& notes,
                   const std::function<void(const std::string& line, const std::string& where)>& take) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return false;
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file, error)) {
    throw DataError(fmt::format("[report] {}: cannot open for reading. Hint: check its permissions", file));
  }
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (in.eof()) {  // no end of line
      notes.push_back(fmt::format("{}:{}: the last line is not whole and was left out", file, number));
      break;
    }
    if (line.find_first_not_of(" \t\r") != std::string::npos) take(line, fmt::format("{}:{}", file, number));
  }
  if (in.bad()) throw DataError(fmt::format("[report] {}: cannot be read to its end. Hint: check the disk", file));
  return true;
}

// Sorted by step; of equal steps the last stays, as a run that was resumed writes them again.
template <typename T, typename StepOf>
void sort_by_step(std::vector<T>& records, StepOf&& step_of) {
  std::stable_sort(records.begin(), records.end(), [&](const T& a, const T& b) { return step_of(a) < step_of(b); });
  std::vector<T> kept;
  for (T& record : records) {
    if (!kept.empty() && step_of(kept.back()) == step_of(record)) kept.pop_back();
    kept.push_back(std::move(record));
  }
  records = std::move(kept);
}

std::vector<std::pair<int64_t, Plan>> load_plans(const std::string& folder) {
  constexpr std::string_view kHead = "plan_step_", kTail = ".json";
  std::vector<std::pair<int64_t, Plan>> plans;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kHead) || !name.ends_with(kTail)) continue;
    int64_t step = 0;
    const char* end = name.data() + name.size() - kTail.size();
    const auto [read, error] = std::from_chars(name.data() + kHead.size(), end, step);
    if (error != std::errc() || read != end) continue;
    std::ostringstream text;
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    plans.emplace_back(step, plan_from_json(text.str(), entry.path().string()));
  }
  sort_by_step(plans, [](const auto& plan) { return plan.first; });
  return plans;
}

}  // namespace

StepMetrics parse_step_metrics(const std::string& line, const std::string& where) {
  const Record record(line, where);
  StepMetrics metrics;
  metrics.step = record.integer("step");
  metrics.epoch = record.number("epoch");
  metrics.loss = record.number("loss");
  metrics.loss_tokens = record.integer("loss_tokens");
  metrics.grad_norm = record.number("grad_norm");
  metrics.lr = record.number("lr");
  metrics.samples = record.integers("samples");
  metrics.tokens = record.integer("tokens");
  metrics.sum_squared_tokens = record.integer("sum_squared_tokens");
  metrics.cp_histogram = record.by_cp_size<int64_t>("cp_histogram");
  metrics.cp_token_share = record.by_cp_size<double>("cp_token_share");
  metrics.micro_steps = record.integer("micro_steps");
  metrics.budget_use = record.number("budget_use");
  metrics.padding_waste = record.number("padding_waste");
  metrics.idle_share = record.numbers("idle_share");
  metrics.exposed_comm_ms = record.number("exposed_comm_ms");
  metrics.reward_mean = record.optional_number("reward_mean");
  metrics.mfu = record.optional_number("mfu");
  metrics.plan_ms = record.number("plan_ms");
  metrics.step_ms = record.number("step_ms");
  metrics.tokens_per_s = record.number("tokens_per_s");
  metrics.tflops_per_gpu = record.number("tflops_per_gpu");
  metrics.peak_memory_bytes = record.integer("peak_memory_bytes");
  return metrics;
}

EvalMetrics parse_eval_metrics(const std::string& line, const std::string& where) {
  const Record record(line, where);
  return {record.integer("step"), record.number("loss"), record.number("accuracy")};
}

RunRecord load_run(const std::string& folder) {
  RunRecord run;
  const std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  run.name = (path.has_filename() ? path : path.parent_path()).filename().string();
  const bool is_run = for_each_line(folder + "/metrics.jsonl", run.notes, [&](const auto& line, const auto& where) {
    run.steps.push_back(parse_step_metrics(line, where));
  });
  if (!is_run) {
    throw UsageError(
        fmt::format("[report] {}: holds no metrics.jsonl, expected the --output-dir of ringfold train. "
                    "Hint: ringfold report RUN",
                    folder));
  }
  for_each_line(folder + "/eval.jsonl", run.notes,
                [&](const auto& line, const auto& where) { run.evals.push_back(parse_eval_metrics(line, where)); });
  for_each_line(folder + "/timeline.jsonl", run.notes,
                [&](const auto& line, const auto& where) { run.timelines.push_back(parse_timeline(line, where)); });
  run.plans = load_plans(folder);
  sort_by_step(run.steps, [](const auto& record) { return record.step; });
  sort_by_step(run.evals, [](const auto& record) { return record.step; });
  sort_by_step(run.timelines, [](const auto& record) { return record.step; });
  return run;
}

}  // namespace ringfold
