#include "ringfold/report/metrics.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

StepMetrics example() {
  StepMetrics metrics;
  metrics.step = 3;
  metrics.epoch = 1.5;
  metrics.loss = 0.1;
  metrics.loss_tokens = 2100;
  metrics.grad_norm = 2;
  metrics.lr = 1e-5;
  metrics.samples = {4, 0, 7};
  metrics.tokens = 7200;
  metrics.sum_squared_tokens = 18560000;
  metrics.cp_histogram = {{1, 4}, {4, 1}};
  metrics.cp_token_share = {{1, 0.25}, {4, 0.75}};
  metrics.idle_share = {0, 0.5};
  metrics.step_ms = 2000;
  metrics.tokens_per_s = 3600;
  metrics.peak_memory_bytes = int64_t{1} << 40;
  return metrics;
}

TEST(Metrics, record_carries_the_names_scripts_rely_on) {
  StepMetrics metrics = example();
  metrics.ratio_max_dev = 0.5;
  metrics.policy_loss = 0.75;
  metrics.train_rollout_logprob_abs_diff = 0.01;
  metrics.clip_fraction = 0.25;
  metrics.approx_kl = 0.125;
  metrics.reward_mean = 1;
  metrics.mfu = 0.4;
  const json record = json::parse(to_json_line(metrics));
  for (const char* key : {"step",         "epoch",          "loss",
                          "loss_tokens",  "grad_norm",      "lr",
                          "samples",      "tokens",         "sum_squared_tokens",
                          "cp_histogram", "ratio_max_dev",  "clip_fraction",
                          "approx_kl",    "policy_loss",    "train_rollout_logprob_abs_diff",
                          "entropy",      "plan_ms",        "step_ms",
                          "tokens_per_s", "tflops_per_gpu", "peak_memory_bytes"}) {
    EXPECT_TRUE(record.contains(key)) << key;
  }
  EXPECT_EQ(record["loss"], 0.1);
  EXPECT_EQ(record["samples"], json({4, 0, 7}));
  EXPECT_EQ(record["cp_histogram"], json({{"1", 4}, {"4", 1}}));
  EXPECT_EQ(record["cp_token_share"]["4"], 0.75);
  EXPECT_EQ(record["peak_memory_bytes"], int64_t{1} << 40);
  EXPECT_EQ(record["mfu"], 0.4);
  EXPECT_TRUE(record["step"].is_number_integer());
}

TEST(Metrics, every_member_is_documented_and_nothing_else) {
  StepMetrics metrics = example();
  metrics.ratio_max_dev = metrics.clip_fraction = metrics.approx_kl = metrics.reward_mean = metrics.mfu = 0;
  metrics.policy_loss = metrics.kl_loss = metrics.dual_clip_fraction = metrics.truncated_ratio = 0;
  metrics.response_length_mean = metrics.response_length_max = metrics.train_rollout_logprob_abs_diff = 0;
  metrics.tis_mean = metrics.tis_clip_fraction = 0;
  std::set<std::string> written, documented;
  const json record = json::parse(to_json_line(metrics));
  for (const auto& [key, value] : record.items()) written.insert(key);
  std::ifstream page(RINGFOLD_SOURCE_DIR "/docs/reference/metrics.md");
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `")) documented.insert(line.substr(3, line.find('`', 3) - 3));
  }
  EXPECT_EQ(written, documented);
}

TEST(Metrics, every_field_of_a_rollout_is_documented) {
  std::ifstream file(RINGFOLD_SOURCE_DIR "/docs/reference/metrics.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  RolloutMetrics metrics;
  metrics.reward_mean = 0.5;
  const json record = json::parse(to_json_line(metrics));
  EXPECT_EQ(record["reward_mean"], 0.5);
  for (const auto& [key, value] : record.items()) EXPECT_THAT(page, HasSubstr("- `" + key + "`")) << key;
}

TEST(Metrics, record_stays_json_when_a_number_is_not_finite) {
  StepMetrics metrics = example();
  metrics.loss = std::nan("");
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  metrics.idle_share = {std::nan("")};
  metrics.mfu = std::nan("");
  const json record = json::parse(to_json_line(metrics));
  EXPECT_TRUE(record["loss"].is_null());
  EXPECT_TRUE(record["grad_norm"].is_null());
  EXPECT_TRUE(record["idle_share"][0].is_null());
  EXPECT_TRUE(record["mfu"].is_null());
}

TEST(Metrics, rl_fields_are_left_out_where_they_do_not_exist) {
  const json record = json::parse(to_json_line(example()));
  for (const char* key : {"ratio_max_dev", "clip_fraction", "approx_kl", "reward_mean", "mfu"}) {
    EXPECT_FALSE(record.contains(key)) << key;
  }
}

TEST(Metrics, doubles_keep_every_bit) {
  StepMetrics metrics = example();
  metrics.loss = 1.0 / 3;
  EXPECT_EQ(json::parse(to_json_line(metrics))["loss"].get<double>(), 1.0 / 3);
}

TEST(MetricsFile, appends_one_flushed_line_a_step) {
  const std::string path = ::testing::TempDir() + "ringfold_metrics_" + std::to_string(getpid());
  {
    MetricsFile file(path);
    file.append(to_json_line(example()));
    std::ifstream early(path);
    std::string line;
    EXPECT_TRUE(std::getline(early, line));
    EXPECT_EQ(json::parse(line)["step"], 3);
    file.append(to_json_line(example()));
  }
  MetricsFile(path).append(to_json_line(example()));
  std::ifstream file(path);
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) EXPECT_NO_THROW(json::parse(line));
  EXPECT_EQ(lines, 3);
  std::remove(path.c_str());
}

TEST(MetricsFile, errors_name_the_file) {
  EXPECT_THAT([] { MetricsFile("/nowhere/metrics.jsonl"); },
              ::testing::ThrowsMessage<RunError>(HasSubstr("[report] /nowhere/metrics.jsonl: cannot open for writing: "
                                                           "No such file")));
  EXPECT_THAT([] { MetricsFile("/dev/full").append(to_json_line(example())); },
              ::testing::ThrowsMessage<RunError>(HasSubstr("/dev/full: cannot write a record: No space")));
}

TEST(Progress, writes_plain_lines_when_stderr_is_no_terminal) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress(5, true);
    progress.step(example());
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "step 3/5  loss 0.1  grad_norm 2  lr 1e-05  3600 tokens/s  ETA 0:04\n");
}

TEST(Progress, is_silent_when_disabled) {
  ::testing::internal::CaptureStderr();
  Progress(5, false).step(example());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, rewrites_one_bar_on_a_terminal) {
  int master = -1, terminal = -1;
  ASSERT_EQ(openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  const int saved = dup(STDERR_FILENO);
  dup2(terminal, STDERR_FILENO);
  {
    Progress progress(4, true);
    StepMetrics metrics = example();
    progress.step(metrics);
    metrics.step = 4;
    progress.step(metrics);
  }
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(terminal);
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(master, buffer, sizeof buffer)) > 0;) text.append(buffer, buffer + count);
  close(master);
  EXPECT_THAT(text, HasSubstr("\r[##################......] step 3/4  loss 0.1"));
  EXPECT_THAT(text, HasSubstr("\r[########################] step 4/4"));
  EXPECT_EQ(text.find('\n'), text.size() - 1) << "one line end, at the end";
}

TEST(Table, lines_up_also_with_long_titles_and_wide_letters) {
  EXPECT_EQ(table_text("plan", {{"world", "4"}, {"S", "2 \xC3\xA9"}}),
            "+------------+\n| plan       |\n+------------+\n| world  4   |\n| S      2 \xC3\xA9 |\n+------------+\n");
  EXPECT_EQ(table_text("a long title", {{"a", "b"}}),
            "+--------------+\n| a long title |\n+--------------+\n| a  b         |\n+--------------+\n");
}

}  // namespace
}  // namespace ringfold
