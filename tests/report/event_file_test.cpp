// The format byte by byte, the scalars of a step, and what TensorBoard's own reader makes of a file.
#include "ringfold/report/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// "80 01" -> two bytes.
std::string bytes(const std::string& hex) {
  std::istringstream words(hex);
  std::string text;
  for (std::string word; words >> word;) text += static_cast<char>(std::stoi(word, nullptr, 16));
  return text;
}

uint32_t unmasked(uint32_t masked) {
  const uint32_t rotated = masked - 0xA282EAD8;
  return rotated >> 17 | rotated << 15;
}

// RFC 3720, appendix B.4, and the check value of CRC catalogues.
TEST(EventFile, the_crc_is_castagnolis) {
  EXPECT_EQ(unmasked(masked_crc32c("123456789")), 0xE3069283);
  EXPECT_EQ(unmasked(masked_crc32c(std::string(32, '\0'))), 0x8A9136AA);
  EXPECT_EQ(unmasked(masked_crc32c(std::string(32, '\xFF'))), 0x62A8AB43);
  EXPECT_EQ(unmasked(masked_crc32c("")), 0u);
}

TEST(EventFile, the_first_event_holds_time_and_version) {
  EXPECT_EQ(version_event(1.5), bytes("09 00 00 00 00 00 00 f8 3f 1a 0d") + "brain.Event:2");
}

TEST(EventFile, an_event_holds_step_and_scalars) {
  // wall_time 2, step 300 as a varint, summary of 20 bytes with two values.
  EXPECT_EQ(scalars_event(2, 300, {{"a", 1}, {"b/c", -0.5}}), bytes("09 00 00 00 00 00 00 00 40 10 ac 02 2a 16") +
                                                                  bytes("0a 08 0a 01 61 15 00 00 80 3f") +
                                                                  bytes("0a 0a 0a 03 62 2f 63 15 00 00 00 bf"));
}

TEST(EventFile, a_record_is_framed_by_length_and_checksums) {
  const std::string record = framed_record("xyz");
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(record.substr(0, 8), bytes("03 00 00 00 00 00 00 00"));
  const auto u32 = [&record](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value |= static_cast<uint32_t>(static_cast<unsigned char>(record[at + i])) << 8 * i;
    return value;
  };
  EXPECT_EQ(u32(8), masked_crc32c(record.substr(0, 8)));
  EXPECT_EQ(record.substr(12, 3), "xyz");
  EXPECT_EQ(u32(15), masked_crc32c("xyz"));
}

StepMetrics example() {
  StepMetrics metrics;
  metrics.step = 3;
  metrics.loss = 0.25;
  metrics.loss_tokens = 2100;
  metrics.cp_histogram = {{1, 4}, {4, 1}};
  metrics.cp_token_share = {{1, 0.25}, {4, 0.75}};
  metrics.idle_share = {0, 0.5};
  metrics.clip_fraction = 0.125;
  metrics.peak_memory_bytes = int64_t{1} << 40;
  return metrics;
}

TEST(EventFile, every_metric_of_a_step_is_a_scalar_once) {
  std::map<std::string, double> values;
  for (const Scalar& scalar : scalars_of(example())) {
    EXPECT_TRUE(values.emplace(scalar.tag, scalar.value).second) << scalar.tag;
  }
  EXPECT_EQ(values.at("train/loss"), 0.25);
  EXPECT_EQ(values.at("train/loss_tokens"), 2100);
  EXPECT_EQ(values.at("cp_packs/size_4"), 1);
  EXPECT_EQ(values.at("cp_token_share/size_1"), 0.25);
  EXPECT_EQ(values.at("idle_share/rank_1"), 0.5);
  EXPECT_EQ(values.at("rl/clip_fraction"), 0.125);
  EXPECT_EQ(values.at("memory/peak_bytes"), 1099511627776.0);
  for (const char* absent : {"rl/approx_kl", "speed/mfu"}) EXPECT_FALSE(values.contains(absent)) << absent;
}

// docs/reference/metrics.md names every tag, with N for a number.
TEST(EventFile, every_tag_is_documented) {
  std::ifstream file(RINGFOLD_SOURCE_DIR "/docs/reference/metrics.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  StepMetrics all = example();
  all.ratio_max_dev = all.approx_kl = all.reward_mean = all.mfu = 0;
  all.policy_loss = all.kl_loss = all.dual_clip_fraction = all.response_length_mean = all.response_length_max = 0;
  all.truncated_ratio = all.train_rollout_logprob_abs_diff = all.tis_mean = all.tis_clip_fraction = 0;
  std::vector<Scalar> scalars = scalars_of(all);
  for (const Scalar& scalar : scalars_of(EvalMetrics{})) scalars.push_back(scalar);
  for (const Scalar& scalar : scalars_of(RolloutMetrics{})) scalars.push_back(scalar);
  for (const Scalar& scalar : scalars) {
    std::string tag = scalar.tag;
    if (const size_t digit = tag.find_first_of("0123456789"); digit != std::string::npos) tag.replace(digit, 9, "N");
    EXPECT_THAT(page, HasSubstr("`" + tag + "`"));
  }
}

TEST(EventFile, a_file_that_cannot_be_written_is_named) {
  const auto message = [](const std::string& folder) {
    try {
      EventFile file(folder);
      file.append(1, {{"a", 1}});
    } catch (const RunError& error) {
      return std::string(error.what());
    }
    return std::string("nothing thrown");
  };
  EXPECT_THAT(message("/proc/nowhere"),
              AllOf(HasSubstr("[report] /proc/nowhere/events.out.tfevents."), HasSubstr("cannot open for writing")));
}

TEST(EventFile, tensorboard_reads_what_was_written) {
  const std::string python = RINGFOLD_SOURCE_DIR "/.venv/bin/python";
  if (std::system((python + " -c 'import tensorboard' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "no tensorboard for " << python << ": run scripts/setup.sh";
  }
  const std::string folder = ::testing::TempDir() + "ringfold_events_" + std::to_string(getpid());
  EventFile file(folder);
  StepMetrics metrics = example();
  file.append(3, scalars_of(metrics));
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  file.append(int64_t{1} << 40, scalars_of(metrics));
  std::FILE* pipe =
      popen((python + " " RINGFOLD_SOURCE_DIR "/tests/report/read_events.py " + file.path() + " 2>&1").c_str(), "r");
  std::string text;
  char buffer[4096];
  for (size_t count; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, count);
  EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 0) << text;
  EXPECT_THAT(text, HasSubstr("version brain.Event:2\n"));
  EXPECT_THAT(text, HasSubstr("\n3 train/loss 0.25\n"));
  EXPECT_THAT(text, HasSubstr("\n3 cp_packs/size_4 1.0\n"));
  EXPECT_THAT(text, HasSubstr("\n1099511627776 train/loss nan\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), static_cast<long>(1 + 2 * scalars_of(metrics).size()));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ringfold
