#include "ringfold/report/metrics.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

template <typename T>
nlohmann::ordered_json keyed_by_cp_size(const std::map<int, T>& values) {
  auto object = nlohmann::ordered_json::object();
  for (const auto& [cp_size, value] : values) object[std::to_string(cp_size)] = value;
  return object;
}

template <typename T>
void put(nlohmann::ordered_json& record, const char* key, const std::optional<T>& value) {
  if (value) record[key] = *value;
}

}  // namespace

std::string to_json_line(const StepMetrics& metrics) {
  nlohmann::ordered_json record;
  record["step"] = metrics.step;
  record["epoch"] = metrics.epoch;
  record["loss"] = metrics.loss;
  record["loss_tokens"] = metrics.loss_tokens;
  record["grad_norm"] = metrics.grad_norm;
  record["lr"] = metrics.lr;
  record["samples"] = metrics.samples;
  record["tokens"] = metrics.tokens;
  record["sum_squared_tokens"] = metrics.sum_squared_tokens;
  record["cp_histogram"] = keyed_by_cp_size(metrics.cp_histogram);
  record["cp_token_share"] = keyed_by_cp_size(metrics.cp_token_share);
  record["micro_steps"] = metrics.micro_steps;
  record["budget_use"] = metrics.budget_use;
  record["padding_waste"] = metrics.padding_waste;
  record["idle_share"] = metrics.idle_share;
  record["exposed_comm_ms"] = metrics.exposed_comm_ms;
  put(record, "ratio_max_dev", metrics.ratio_max_dev);
  put(record, "clip_fraction", metrics.clip_fraction);
  put(record, "approx_kl", metrics.approx_kl);
  put(record, "reward_mean", metrics.reward_mean);
  record["entropy"] = metrics.entropy;
  record["plan_ms"] = metrics.plan_ms;
  record["step_ms"] = metrics.step_ms;
  record["tokens_per_s"] = metrics.tokens_per_s;
  record["tflops_per_gpu"] = metrics.tflops_per_gpu;
  put(record, "mfu", metrics.mfu);
  record["peak_memory_bytes"] = metrics.peak_memory_bytes;
  return record.dump();
}

std::string to_json_line(const EvalMetrics& metrics) {
  const nlohmann::ordered_json record = {
      {"step", metrics.step}, {"loss", metrics.loss}, {"accuracy", metrics.accuracy}};
  return record.dump();
}

MetricsFile::MetricsFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "a")) {
  if (!file_) {
    throw RunError(fmt::format("[report] {}: cannot open for writing: {}. Hint: check --output-dir and its permissions",
                               path_, std::strerror(errno)));
  }
}

void MetricsFile::append(const std::string& record) {
  const std::string line = record + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0) {
    throw RunError(
        fmt::format("[report] {}: cannot write a record: {}. Hint: is the disk full?", path_, std::strerror(errno)));
  }
}

}  // namespace ringfold
