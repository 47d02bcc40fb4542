// What `ringfold report` reads: plans, timeline records and metrics, down to the page that shows them.
#include "fuzz/fuzz_target.h"
#include "ringfold/report/chrome_trace.h"
#include "ringfold/report/run_html.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringfold;
  const std::string text(fuzz::as_text(data, size));
  RunRecord run;
  fuzz::expect_value_or_message([&] { run.plans.emplace_back(1, plan_from_json(text, "plan.json")); });
  fuzz::expect_value_or_message([&] { run.timelines.push_back(parse_timeline(text, "timeline.jsonl:1")); });
  fuzz::expect_value_or_message([&] { run.steps.push_back(parse_step_metrics(text, "metrics.jsonl:1")); });
  fuzz::expect_value_or_message([&] { run.evals.push_back(parse_eval_metrics(text, "eval.jsonl:1")); });
  for (const auto& [step, plan] : run.plans) {
    constexpr int kMostDrawn = 4096;
    if (plan.topology.lane_size() > kMostDrawn) return 0;  // a large picture, slow but harmless
    fuzz::require(plan_to_json(plan_from_json(plan_to_json(plan), "again")) == plan_to_json(plan), "not the same plan");
  }
  for (const StepTimeline& timeline : run.timelines) {
    if (timeline.plan.topology.lane_size() > 4096) return 0;
    parse_timeline(to_json_line(timeline), "again");
  }
  fuzz::require(!run_to_html({run, 0, CostModel::qwen3_4b_h200()}).empty(), "no page");
  if (!run.timelines.empty()) fuzz::require(!chrome_trace(run.timelines).empty(), "no trace");
  return 0;
}
