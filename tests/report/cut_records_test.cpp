#include "ringfold/report/cut_records.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "ringfold/report/event_file.h"

namespace ringfold {
namespace {

namespace fs = std::filesystem;

class CutRecords : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "ringfold_cut_" + std::to_string(getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(at(name), std::ios::binary) << text;
  }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(at(name), std::ios::binary).rdbuf();
    return text.str();
  }
  std::string folder_;
};

TEST_F(CutRecords, later_steps_and_a_torn_line_go) {
  const std::string one = "{\"step\":1,\"loss\":2}\n", two = "{\"step\":2,\"loss\":null}\n", three = "{\"step\":3}\n";
  write("m", one + two + three);
  cut_records_after(at("m"), 3);
  EXPECT_EQ(read("m"), one + two + three);
  cut_records_after(at("m"), 2);
  EXPECT_EQ(read("m"), one + two);
  write("m", one + two + "{\"step\":2,\"lo");
  cut_records_after(at("m"), 9);
  EXPECT_EQ(read("m"), one + two);
  write("m", one + two + "{\"step\":3}");  // whole, but its end is missing
  cut_records_after(at("m"), 9);
  EXPECT_EQ(read("m"), one + two);
  cut_records_after(at("m"), -1);
  EXPECT_EQ(read("m"), "");
  cut_records_after(at("absent"), 1);
  EXPECT_FALSE(fs::exists(at("absent")));
}

TEST_F(CutRecords, event_files_are_cut_at_a_record) {
  std::string until[4];
  until[0] = framed_record(version_event(1.5));
  const int64_t steps[] = {0, 1, 127, 300000};  // one and more bytes of varint
  for (int i = 1; i < 4; ++i)
    until[i] = until[i - 1] + framed_record(scalars_event(2.5, steps[i], {{"train/loss", 1}}));
  const std::string name = "events.out.tfevents.1.host.2";
  for (int i = 0; i < 4; ++i) {
    write(name, until[3]);
    cut_events_after(folder_, steps[i]);
    EXPECT_EQ(read(name), until[i]) << steps[i];
    write(name, until[3]);
    cut_events_after(folder_, steps[i] + 1);
    EXPECT_EQ(read(name), until[i == 0 ? 1 : i]) << steps[i] + 1;
  }
  write(name, until[2].substr(0, until[2].size() - 3));  // torn
  cut_events_after(folder_, 1000);
  EXPECT_EQ(read(name), until[1]);
  cut_events_after(at("absent"), 1);
}

// Two steps a rollout; the second rollout, whose number is a step of the first, made none.
TEST_F(CutRecords, of_rollouts_by_their_own_numbers) {
  const std::string lines = "{\"rollout\":1,\"step\":9}\n{\"rollout\":2}\n{\"rollout\":3}\n";
  write("rollouts.jsonl", lines);
  cut_records_after(at("rollouts.jsonl"), 2, "rollout");
  EXPECT_EQ(read("rollouts.jsonl"), lines.substr(0, lines.find("{\"rollout\":3}")));

  RolloutMetrics rollout;
  std::string kept = framed_record(version_event(1.5));
  for (const int64_t step : {1, 2}) kept += framed_record(scalars_event(2.5, step, {{"train/loss", 1}}));
  kept += framed_record(scalars_event(2.5, 1, scalars_of(rollout)));
  const std::string name = "events.out.tfevents.1.host.2";
  const std::string all = kept + framed_record(scalars_event(2.5, 2, scalars_of(rollout)));
  write(name, all);
  cut_events_after(folder_, 2, 2);
  EXPECT_EQ(read(name), all);
  cut_events_after(folder_, 2, 1);
  EXPECT_EQ(read(name), kept);
}

}  // namespace
}  // namespace ringfold
