// The timeline record and Chrome traces: what is written reads back, whatever is wrong is told.
#include "ringfold/report/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "report/run_support.h"
#include "ringfold/base/error.h"
#include "ringfold/report/chrome_trace.h"

namespace ringfold {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::plan_of;
using ::testing::StartsWith;
using testing::timeline_of;

const std::vector<int64_t> kLengths = {900, 800, 4000, 100, 100, 2000};

TEST(Timeline, reads_back_with_lengths_and_times) {
  const StepTimeline written = timeline_of(7, plan_of(kLengths), 1.25);
  const StepTimeline read = parse_timeline(to_json_line(written), "RUN/timeline.jsonl:3");
  EXPECT_EQ(read.step, 7);
  EXPECT_NEAR(read.step_us, written.step_us, 0.1);
  EXPECT_EQ(plan_to_json(read.plan), plan_to_json(written.plan));
  ASSERT_EQ(read.measured.size(), 4u);
  for (size_t r = 0; r < 4; ++r) {
    ASSERT_EQ(read.measured[r].size(), written.measured[r].size());
    for (size_t p = 0; p < read.measured[r].size(); ++p) {
      EXPECT_NEAR(read.measured[r][p].start_us, written.measured[r][p].start_us, 0.06);
      EXPECT_NEAR(read.measured[r][p].end_us, written.measured[r][p].end_us, 0.06);
    }
  }
  for (size_t m = 0; m < read.plan.micro_steps.size(); ++m) {
    for (size_t g = 0; g < read.plan.micro_steps[m].groups.size(); ++g) {
      EXPECT_EQ(read.plan.micro_steps[m].groups[g].lengths, written.plan.micro_steps[m].groups[g].lengths);
    }
  }
}

TEST(Timeline, a_group_runs_from_its_last_rank_in_to_its_last_rank_out) {
  StepTimeline timeline = timeline_of(1, plan_of({4000}));
  ASSERT_EQ(timeline.measured[3].size(), 1u);
  timeline.measured[1][0].start_us = 40;
  timeline.measured[2][0].end_us = 1e6;
  const auto groups = measured_groups(timeline);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].ranks.size(), 4u);
  EXPECT_EQ(groups[0].start_us, 40);
  EXPECT_EQ(groups[0].end_us, 1e6);
  EXPECT_EQ(packs_end_us(timeline), 1e6);
}

TEST(Timeline, is_made_from_rows_that_the_ranks_fill) {
  const Plan plan = plan_of({4000, 900, 900, 10});
  const StepTimeline expected = timeline_of(2, plan);
  const auto width = static_cast<size_t>(most_packs_of_a_rank(plan));
  std::vector<double> times(4 * width * 2, -1);
  for (size_t r = 0; r < 4; ++r) {
    EXPECT_LE(expected.measured[r].size(), width);
    for (size_t p = 0; p < expected.measured[r].size(); ++p) {
      times[(r * width + p) * 2] = expected.measured[r][p].start_us;
      times[(r * width + p) * 2 + 1] = expected.measured[r][p].end_us;
    }
  }
  EXPECT_EQ(to_json_line(make_timeline(2, expected.step_us, plan, times)), to_json_line(expected));
}

std::string complaint(const json& record) {
  try {
    parse_timeline(record.dump(), "t.jsonl:2");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(Timeline, whatever_is_wrong_is_named) {
  const json good = json::parse(to_json_line(timeline_of(1, plan_of(kLengths))));
  EXPECT_EQ(complaint(good), "");
  const auto with = [&](const char* pointer, const json& value) {
    json bad = good;
    bad[json::json_pointer(pointer)] = value;
    return complaint(bad);
  };
  EXPECT_THAT(with("/schema", 2), StartsWith("[report] t.jsonl:2: schema: got another version"));
  EXPECT_THAT(with("/step_us", -1), HasSubstr("step_us: got -1, expected a number of at least 0. Hint: "));
  EXPECT_THAT(with("/step", 1.5), HasSubstr("step: got 1.5, expected an integer"));
  EXPECT_THAT(with("/lengths/0", 17), HasSubstr("lengths: got "));
  EXPECT_THAT(with("/lengths", json::array()), HasSubstr("lengths: got 0, expected one for each sample"));
  EXPECT_THAT(with("/lengths", 3), HasSubstr("lengths: got something else, expected an array"));
  EXPECT_THAT(with("/lengths/6", 3), HasSubstr("lengths: got 7, expected 6 samples"));
  EXPECT_THAT(with("/measured_us", json::array()), HasSubstr("measured_us: expected an array of 4 ranks"));
  EXPECT_THAT(with("/measured_us/0/0", 1e12), HasSubstr("rank 0: got a pack that ends before it starts"));
  EXPECT_THAT(with("/measured_us/1", json::array()), HasSubstr("rank 1: expected start and end of its "));
  EXPECT_THAT(with("/plan/budget", "much"), StartsWith("[plan] t.jsonl:2: budget: got \"much\", expected an integer"));
  json without = good;
  without.erase("measured_us");
  EXPECT_THAT(complaint(without), HasSubstr("measured_us is missing from the timeline record. Hint: ringfold train "));
  EXPECT_THAT(complaint(3), HasSubstr("t.jsonl:2: broken JSON, expected one object"));
  json deep = 1;
  for (int i = 0; i < 30; ++i) deep = json::array({deep});
  EXPECT_THAT(complaint(deep), HasSubstr("nested more than 18 deep"));
}

// Events by process, and the names of processes and threads.
std::map<int, int> packs_in(const std::string& text, size_t ranks) {
  const json trace = json::parse(text);
  std::map<int, int> packs;
  for (const json& event : trace.at("traceEvents")) {
    EXPECT_LT(event.at("tid").get<size_t>(), ranks);
    if (event.at("ph") == "M") continue;
    EXPECT_EQ(event.at("ph"), "X");
    EXPECT_GE(event.at("ts").get<double>(), 0);
    EXPECT_GT(event.at("dur").get<double>(), 0);
    EXPECT_EQ(event.at("args").at("samples").size(), event.at("args").at("lengths").size());
    ++packs[event.at("pid").get<int>()];
  }
  return packs;
}

int rank_packs(const Plan& plan) {
  int packs = 0;
  for (const MicroStep& step : plan.micro_steps) {
    for (const PlannedGroup& group : step.groups) packs += group.cp_size.value();
  }
  return packs;
}

TEST(ChromeTrace, of_a_plan_has_an_event_a_pack_and_rank) {
  const Plan plan = plan_of(kLengths);
  const std::string text = chrome_trace(plan);
  EXPECT_EQ(packs_in(text, 4), (std::map<int, int>{{0, rank_packs(plan)}}));
  const json trace = json::parse(text);
  EXPECT_EQ(trace["traceEvents"][0]["name"], "process_name");
  EXPECT_EQ(trace["traceEvents"][0]["args"]["name"], "predicted");
  EXPECT_EQ(trace["traceEvents"][2]["args"]["name"], "rank 1");
}

TEST(ChromeTrace, of_steps_lays_them_end_to_end_beside_the_prediction) {
  const Plan plan = plan_of(kLengths);
  const std::vector<StepTimeline> steps = {timeline_of(1, plan), timeline_of(2, plan)};
  const std::string text = chrome_trace(steps);
  const int packs = rank_packs(plan);
  EXPECT_EQ(packs_in(text, 4), (std::map<int, int>{{0, 2 * packs}, {1, 2 * packs}}));
  double first_end = 0, second_start = 1e18;
  const json trace = json::parse(text);
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double ts = event["ts"].get<double>();
    if (event["args"]["step"] == 1) first_end = std::max(first_end, ts + event["dur"].get<double>());
    if (event["args"]["step"] == 2) second_start = std::min(second_start, ts);
  }
  EXPECT_LE(first_end, second_start);
}

}  // namespace
}  // namespace ringfold
