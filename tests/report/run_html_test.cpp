// The page of a run: what it reads, what it shows, what it refuses.
#include "ringfold/report/run_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "report/run_support.h"
#include "ringfold/base/error.h"
#include "ringfold/report/drawing.h"
#include "ringfold/report/run_record.h"

namespace ringfold {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::metrics_of;
using ::testing::Not;
using testing::plan_of;
using testing::RunFolder;
using ::testing::StartsWith;
using testing::timeline_of;

const std::vector<int64_t> kLengths = {900, 800, 4000, 100, 100, 2000};

// Two steps with timelines.
void write_run(const RunFolder& run, double slower = 1.1) {
  for (const int64_t step : {1, 2}) {
    run.append("metrics.jsonl", to_json_line(metrics_of(step, kLengths.size())) + "\n");
    run.append("timeline.jsonl", to_json_line(timeline_of(step, plan_of(kLengths), slower)) + "\n");
  }
  run.append("eval.jsonl", to_json_line(EvalMetrics{2, 1.25, 0.5}) + "\n");
}

std::string page_of(const RunFolder& run, int64_t step = 0) {
  return run_to_html({load_run(run.path()), step, CostModel::qwen3_4b_h200()});
}

TEST(RunRecord, reads_what_train_writes) {
  const RunFolder folder;
  write_run(folder);
  StepMetrics odd = metrics_of(3, 2);
  odd.loss = std::numeric_limits<double>::quiet_NaN();
  odd.reward_mean = 0.5;
  folder.append("metrics.jsonl", to_json_line(odd) + "\n\n");
  folder.append("plan_step_9.json", plan_to_json(plan_of({4000, 10})) + "\n");
  folder.append("plan_step_x.json", "not a plan of a step");
  const RunRecord run = load_run(folder.path() + "/");
  EXPECT_THAT(run.name, StartsWith("ringfold_run_"));
  ASSERT_EQ(run.steps.size(), 3u);
  EXPECT_EQ(run.steps[0].cp_token_share, (std::map<int, double>{{1, 0.25}, {4, 0.75}}));
  EXPECT_EQ(run.steps[1].samples.size(), kLengths.size());
  EXPECT_TRUE(std::isnan(run.steps[2].loss));
  EXPECT_EQ(run.steps[2].reward_mean, 0.5);
  ASSERT_EQ(run.evals.size(), 1u);
  EXPECT_EQ(run.evals[0].accuracy, 0.5);
  EXPECT_EQ(run.timelines.size(), 2u);
  ASSERT_EQ(run.plans.size(), 1u);
  EXPECT_EQ(run.plans[0].first, 9);
  EXPECT_THAT(run.notes, ElementsAre());
}

TEST(RunRecord, a_step_written_again_counts_once_and_half_a_line_not_at_all) {
  const RunFolder folder;
  for (const int64_t step : {1, 2, 3, 2, 3}) folder.append("metrics.jsonl", to_json_line(metrics_of(step, 1)) + "\n");
  folder.append("metrics.jsonl", "{\"step\":4,\"epo");
  const RunRecord run = load_run(folder.path());
  ASSERT_EQ(run.steps.size(), 3u);
  EXPECT_EQ(run.steps[2].step, 3);
  EXPECT_THAT(run.notes, ElementsAre(HasSubstr("metrics.jsonl:6: the last line is not whole and was left out")));
}

std::string complaint(const std::string& line) {
  try {
    parse_step_metrics(line, "m.jsonl:4");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& old, const std::string& with) {
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), with);
}

TEST(RunRecord, whatever_is_wrong_is_named) {
  const std::string good = to_json_line(metrics_of(1, 2));
  EXPECT_EQ(complaint(good), "");
  EXPECT_EQ(complaint("{\"step\":1"),
            "[report] m.jsonl:4: broken JSON, expected one object a line. Hint: ringfold train writes this file; see "
            "docs/reference/metrics.md");
  EXPECT_THAT(complaint("{}"), HasSubstr("m.jsonl:4: step is missing from the record. Hint: "));
  EXPECT_THAT(complaint(replaced(good, "\"step\":1", "\"step\":\"one\"")),
              HasSubstr("step: got \"one\", expected an integer"));
  EXPECT_THAT(complaint(replaced(good, "\"step_ms\":200.0", "\"step_ms\":[]")),
              HasSubstr("step_ms: got [], expected a number"));
  EXPECT_THAT(complaint(replaced(good, "{\"1\":4", "{\"3\":4")),
              HasSubstr("cp_histogram: got 3: 4, expected a number for a power of two"));
  EXPECT_THAT(complaint(replaced(good, "{\"1\":4", "{\"1\":4.5")), HasSubstr("cp_histogram: got 1: 4.5"));
  EXPECT_THAT(complaint(replaced(good, "\"idle_share\":[0.0", "\"idle_share\":[\"a\"")),
              HasSubstr("idle_share: got \"a\", expected a number"));
  EXPECT_THAT(complaint(replaced(good, "\"samples\":[0,1]", "\"samples\":7")),
              HasSubstr("samples: got 7, expected an array of integers"));
  EXPECT_THAT(complaint(std::string(40, '[')), HasSubstr("nested too deep"));

  const RunFolder empty;
  EXPECT_THROW(
      try { load_run(empty.path()); } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr(": holds no metrics.jsonl, expected the --output-dir of ringfold train."));
        throw;
      },
      UsageError);
  std::filesystem::create_directories(empty.path() + "/metrics.jsonl");
  EXPECT_THROW(load_run(empty.path()), DataError);
}

TEST(RunPage, shows_measured_beside_predicted_beside_static_and_opens_offline) {
  const RunFolder run;
  write_run(run);
  const std::string page = page_of(run);
  EXPECT_THAT(page, StartsWith("<!doctype html>"));
  for (const char* what :
       {"2 steps, loss 3 to 1.5", "Loss by step", "held-out loss", "Throughput by step", "Who ran what, when: step 2",
        "<h2>Measured</h2>", "<h2>Predicted</h2>", "Static CP = 4 by tokens, predicted",
        "faster than static CP by tokens", "Static and dynamic, step by step", "Predicted and measured, by CP size",
        "Tokens by CP size", "Use of the ranks", "sample 2: 4,000 tokens", "prefers-color-scheme:dark"}) {
    EXPECT_THAT(page, HasSubstr(what));
  }
  for (const char* fetched : {"<script", "http:", "https:", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(fetched))) << "it must open offline";
  }
  EXPECT_THAT(page, Not(HasSubstr("Predictions are those of another machine")));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page_of(run, 1), HasSubstr("Who ran what, when: step 1"));
}

TEST(RunPage, says_when_the_predictions_are_of_another_machine) {
  const RunFolder run;
  write_run(run, 900);
  EXPECT_THAT(page_of(run), HasSubstr("measured times are 900 times as long"));
  // A run that planned with another model: static CP cannot be drawn, its predicted time is still there.
  const std::string other = run_to_html({load_run(run.path()), 0, CostModel::megatron_small_h200()});
  EXPECT_THAT(other, Not(HasSubstr("Static CP = 4 by tokens, predicted</h2>")));
  EXPECT_THAT(other, HasSubstr("faster than static CP by tokens"));
}

TEST(RunPage, a_run_that_kept_less_is_shown_with_less) {
  const RunFolder run;
  run.append("metrics.jsonl", "");
  EXPECT_THAT(page_of(run), HasSubstr("no step yet"));
  run.append("metrics.jsonl", to_json_line(metrics_of(1, 2)) + "\n");
  EXPECT_THAT(page_of(run), HasSubstr("kept no timeline.jsonl and no plans (--dump-plans)"));
  run.append("plan_step_1.json", plan_to_json(plan_of({4000, 10})));
  const std::string planned = page_of(run);
  EXPECT_THAT(planned, HasSubstr("Who ran what, when: step 1"));
  EXPECT_THAT(planned, Not(HasSubstr("<h2>Measured</h2>")));
  EXPECT_THROW(
      try { page_of(run, 5); } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), StartsWith("[report] --step: got 5, which left no timeline and no plan; expected one "
                                             "from 1 to 1. Hint: "));
        throw;
      },
      UsageError);
}

TEST(RunPage, a_long_run_stays_a_small_page) {
  RunRecord run;
  run.name = "<b>&\"long\"";
  for (int64_t step = 1; step <= 50'000; ++step) run.steps.push_back(metrics_of(step, 0));
  const std::string page = run_to_html({run, 0, CostModel::qwen3_4b_h200()});
  EXPECT_LT(page.size(), 200'000u);
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;&amp;&quot;long&quot;: 50,000 steps"));
  EXPECT_THAT(page, Not(HasSubstr("<b>&")));
}

TEST(Drawing, numbers_for_people) {
  EXPECT_EQ(drawing::with_thousands(1234567), "1,234,567");
  EXPECT_EQ(drawing::with_thousands(-123456), "-123,456");
  EXPECT_EQ(drawing::with_thousands(-123), "-123");
  EXPECT_EQ(drawing::duration(0), "0 ms");
  EXPECT_EQ(drawing::duration(340), "340 us");
  EXPECT_EQ(drawing::duration(12'340), "12.3 ms");
  EXPECT_EQ(drawing::duration(340'400), "340 ms");
  EXPECT_EQ(drawing::duration(1'204'000), "1.20 s");
}

TEST(Drawing, curves_without_a_finite_value_or_with_one_point_are_no_problem) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(drawing::lines_svg("x", {{"a", "red", {{1, nan}}, false}}, drawing::Unit::kPlain, true),
              HasSubstr("no finite value"));
  const std::string one = drawing::lines_svg("x", {{"a", "red", {{1, 5}}, false}}, drawing::Unit::kPlain, false);
  EXPECT_THAT(one, HasSubstr("<circle"));
  EXPECT_THAT(one, Not(HasSubstr("nan")));
  EXPECT_THAT(one, Not(HasSubstr("inf")));
  const std::string gap =
      drawing::lines_svg("x", {{"a", "red", {{1, 5}, {2, nan}, {3, 6}}, false}}, drawing::Unit::kPlain, false);
  EXPECT_EQ(std::count(gap.begin(), gap.end(), 'M'), 2) << gap;
}

}  // namespace
}  // namespace ringfold
