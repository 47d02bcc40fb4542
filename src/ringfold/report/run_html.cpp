#include "ringfold/report/run_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "ringfold/base/error.h"
#include "ringfold/plan/planner.h"
#include "ringfold/plan/policy_names.h"
#include "ringfold/report/drawing.h"
#include "ringfold/report/plan_timeline.h"

namespace ringfold {
namespace {

using drawing::duration;
using drawing::Series;
using drawing::with_thousands;

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return kNotANumber;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The same plan with all times multiplied.
Plan scaled(Plan plan, double factor) {
  for (MicroStep& step : plan.micro_steps) {
    for (PlannedGroup& group : step.groups) group.cost_us *= factor, group.start_us *= factor;
  }
  plan.summary.makespan_us *= factor;
  plan.summary.static_makespan_us *= factor;
  plan.summary.lower_bound_us *= factor;
  return plan;
}

drawing::Timeline measured_timeline(const StepTimeline& timeline) {
  drawing::Timeline picture;
  picture.ranks = timeline.plan.topology.lane_size();
  picture.end_us = std::max(timeline.step_us, packs_end_us(timeline));
  for (const MeasuredGroup& measured : measured_groups(timeline)) {
    for (size_t r = 0; r < measured.ranks.size(); ++r) {
      const PackTime& time = measured.ranks[r];
      const std::string times = fmt::format("{} to {}", duration(time.start_us), duration(time.end_us));
      picture.boxes.push_back({measured.group->first_rank.value() + static_cast<int>(r), 1, time.start_us, time.end_us,
                               measured.group->cp_size, describe_group(*measured.group, timeline.plan.budget, times)});
    }
  }
  return picture;
}

// A planned step with what was measured of it.
struct SeenStep {
  int64_t step = 0;
  const Plan* plan = nullptr;
  const StepTimeline* timeline = nullptr;  // null: only the plan was kept
  double measured_us = kNotANumber;        // until the last pack was done; the whole step where only that is known
};

class RunPageWriter {
 public:
  explicit RunPageWriter(const RunPage& page)
      : page_(page), run_(page.run), html_("Ringfold run " + page.run.name), seen_(seen_steps()) {
    std::vector<double> ratios;
    for (const SeenStep& seen : seen_) ratios.push_back(seen.measured_us / seen.plan->summary.makespan_us);
    measured_over_predicted_ = median(ratios);
    const bool alike = measured_over_predicted_ >= 0.5 && measured_over_predicted_ <= 2;
    if (std::isfinite(measured_over_predicted_) && measured_over_predicted_ > 0 && !alike) {
      scale_ = measured_over_predicted_;
    }
  }

  std::string write() {
    headline();
    facts();
    curves();
    if (seen_.empty()) {
      html_.section("Who ran what, when",
                    "This run kept no timeline.jsonl and no plans (--dump-plans), so its steps cannot be drawn.");
    } else {
      one_step(chosen());
      static_beside_dynamic();
      predicted_beside_measured();
    }
    sizes();
    use();
    for (const std::string& note : run_.notes) html_.paragraph("Note: " + note + ".");
    return html_.finish();
  }

 private:
  std::vector<SeenStep> seen_steps() const {
    std::map<int64_t, SeenStep> seen;
    for (const auto& [step, plan] : run_.plans) seen[step] = {step, &plan, nullptr, kNotANumber};
    for (const StepMetrics& metrics : run_.steps) {
      if (const auto found = seen.find(metrics.step); found != seen.end()) {
        found->second.measured_us = metrics.step_ms * 1e3;
      }
    }
    for (const StepTimeline& timeline : run_.timelines) {
      seen[timeline.step] = {timeline.step, &timeline.plan, &timeline, packs_end_us(timeline)};
    }
    std::vector<SeenStep> steps;
    for (const auto& [step, one] : seen) {
      if (one.plan->summary.makespan_us > 0) steps.push_back(one);
    }
    return steps;
  }

  const SeenStep& chosen() const {
    if (page_.step == 0) return seen_.back();
    for (const SeenStep& seen : seen_) {
      if (seen.step == page_.step) return seen;
    }
    throw UsageError(
        fmt::format("[report] --step: got {}, which left no timeline and no plan; expected one from {} to "
                    "{}. Hint: leave it out to see the last",
                    page_.step, seen_.front().step, seen_.back().step));
  }

  void headline() {
    if (run_.steps.empty()) {
      html_.headline(fmt::format("{}: no step yet", run_.name));
      return;
    }
    const StepMetrics& first = run_.steps.front();
    const StepMetrics& last = run_.steps.back();
    html_.headline(fmt::format("{}: {} step{}, loss {:.4g} to {:.4g}", run_.name, with_thousands(last.step),
                               last.step == 1 ? "" : "s", first.loss, last.loss));
    if (seen_.empty()) return;
    const Plan& plan = *seen_.back().plan;
    const Topology& t = plan.topology;
    html_.paragraph(fmt::format(
        "{} ranks (tp {} × pp {} × dp {} × cp {}), {}; policy {}, {}.", t.world_size, t.tp, t.pp, t.dp, t.max_cp,
        plan.budget > 0 ? fmt::format("{} tokens per GPU", with_thousands(plan.budget)) : "no token budget",
        to_string(t.policy), to_string(t.execution)));
  }

  template <typename Value>
  double median_of(Value&& value) const {
    std::vector<double> values;
    for (const StepMetrics& metrics : run_.steps) values.push_back(value(metrics));
    return median(std::move(values));
  }

  static double mean_idle(const StepMetrics& metrics) {
    const auto& idle = metrics.idle_share;
    if (idle.empty()) return kNotANumber;
    return std::accumulate(idle.begin(), idle.end(), 0.0) / static_cast<double>(idle.size());
  }

  void facts() {
    if (run_.steps.empty()) return;
    std::vector<std::pair<std::string, std::string>> facts = {
        {with_thousands(std::llround(median_of([](const auto& m) { return m.tokens_per_s; }))),
         "tokens/s, median step"},
        {duration(median_of([](const auto& m) { return m.step_ms * 1e3; })), "median step"}};
    if (!seen_.empty()) {
      double own = 0, fixed = 0;
      for (const SeenStep& seen : seen_) {
        own += seen.plan->summary.makespan_us;
        fixed += seen.plan->summary.static_makespan_us;
      }
      facts.emplace_back(fmt::format("{:.2f}×", fixed / own), "faster than static CP by tokens, predicted");
    }
    facts.emplace_back(fmt::format("{:.0f} %", 100 * median_of([](const auto& m) { return m.budget_use; })),
                       "of the token budget used");
    facts.emplace_back(fmt::format("{:.1f} %", 100 * median_of(mean_idle)), "idle, mean over ranks");
    facts.emplace_back(
        fmt::format("{:.1f} %", 100 * median_of([](const auto& m) { return m.exposed_comm_ms / m.step_ms; })),
        "waiting for CP traffic");
    html_.facts(facts);
  }

  template <typename Value>
  Series curve(const std::string& name, const char* colour, Value&& value) const {
    Series series{name, colour, {}, false};
    for (const StepMetrics& metrics : run_.steps) {
      series.points.emplace_back(static_cast<double>(metrics.step), value(metrics));
    }
    return series;
  }

  void chart(const std::string& label, const std::vector<Series>& series, drawing::Unit unit, bool from_zero) {
    if (series.size() > 1) html_.add(drawing::series_key(series));
    html_.add(drawing::lines_svg(label, series, unit, from_zero));
  }

  void curves() {
    if (run_.steps.empty()) return;
    html_.section("Loss by step");
    std::vector<Series> loss = {curve("loss", drawing::kAccent, [](const auto& m) { return m.loss; })};
    if (!run_.evals.empty()) {
      Series held_out{"held-out loss", drawing::kWarm, {}, true};
      for (const EvalMetrics& eval : run_.evals) {
        held_out.points.emplace_back(static_cast<double>(eval.step), eval.loss);
      }
      loss.push_back(std::move(held_out));
    }
    chart("loss by step", loss, drawing::Unit::kPlain, false);
    if (std::any_of(run_.steps.begin(), run_.steps.end(), [](const auto& m) { return m.reward_mean.has_value(); })) {
      html_.section("Reward by step");
      chart("reward by step",
            {curve("reward", drawing::kAccent, [](const auto& m) { return m.reward_mean.value_or(kNotANumber); })},
            drawing::Unit::kPlain, false);
    }
    html_.section("Throughput by step", "Real tokens a second, all ranks together.");
    chart("tokens a second by step",
          {curve("tokens/s", drawing::kAccent, [](const auto& m) { return m.tokens_per_s; })}, drawing::Unit::kPlain,
          true);
  }

  void tell_scale() {
    if (scale_ == 1) return;
    html_.paragraph(fmt::format(
        "Predictions are those of another machine: measured times are {:.3g} times as long, and predicted ones are "
        "shown times that. Their shape can be compared, their size cannot. ringfold bench --calibrate fits the model.",
        scale_));
  }

  // What static CP would do with the step's samples; nothing where `cost` is not what the run planned with.
  std::optional<Plan> static_plan(const SeenStep& seen) const {
    PlanRequest request;
    request.topology = seen.plan->topology;
    request.budget = seen.plan->budget;
    request.cost = page_.cost;
    for (const MicroStep& step : seen.plan->micro_steps) {
      for (const PlannedGroup& group : step.groups) {
        if (group.lengths.size() != group.samples.size()) return std::nullopt;
        const double again_us = request.cost.pack_us(group.lengths, group.cp_size);
        if (std::abs(again_us - group.cost_us) > 1e-3 * group.cost_us + 0.01) return std::nullopt;
        for (size_t i = 0; i < group.samples.size(); ++i) {
          if (group.lengths[i] < 1) return std::nullopt;
          request.samples.push_back({group.samples[i], group.lengths[i]});
        }
      }
    }
    put_in_batch_order(seen.step, request.samples);
    const Result<Plan> plan = make_plan(with_policy(request, "static", request.topology.execution));
    if (!plan.ok()) return std::nullopt;
    return plan.value();
  }

  // Packing depends on it.
  void put_in_batch_order(int64_t step, std::vector<SampleLength>& samples) const {
    std::unordered_map<int64_t, size_t> place;
    for (const StepMetrics& metrics : run_.steps) {
      if (metrics.step != step) continue;
      for (size_t i = 0; i < metrics.samples.size(); ++i) place[metrics.samples[i]] = i;
    }
    std::sort(samples.begin(), samples.end(), [&](const SampleLength& a, const SampleLength& b) {
      const auto at_a = place.find(a.id.value()), at_b = place.find(b.id.value());
      if (at_a != place.end() && at_b != place.end()) return at_a->second < at_b->second;
      return a.id < b.id;
    });
  }

  void one_step(const SeenStep& seen) {
    const Plan predicted = scaled(*seen.plan, scale_);
    std::optional<Plan> fixed = static_plan(seen);
    if (fixed) fixed = scaled(std::move(*fixed), scale_);
    double span_us = predicted.summary.makespan_us;
    if (seen.timeline != nullptr) span_us = std::max({span_us, seen.timeline->step_us, seen.measured_us});
    if (fixed) span_us = std::max(span_us, fixed->summary.makespan_us);
    const double limit_us = scale_ == 1 ? predicted.summary.lower_bound_us : 0;  // of this machine only

    html_.section(fmt::format("Who ran what, when: step {}", seen.step),
                  "One row a rank, one box a pack, coloured by CP size; grey is idle, reduction and update. Point at a "
                  "box for its samples. All pictures have the same time scale.");
    tell_scale();
    html_.add(drawing::size_key(std::max(widest_level(predicted), fixed ? widest_level(*fixed) : 0), limit_us > 0));
    if (seen.timeline != nullptr) {
      html_.section("Measured", fmt::format("Packs done after {}, step after {}. A pack's time holds the wait for its "
                                            "other ranks.",
                                            duration(seen.measured_us), duration(seen.timeline->step_us)));
      drawing::Timeline picture = measured_timeline(*seen.timeline);
      picture.limit_us = limit_us;
      html_.add(drawing::timeline_svg(picture, span_us));
    }
    html_.section("Predicted", fmt::format("Packs done after {}.", duration(predicted.summary.makespan_us)));
    html_.add(drawing::timeline_svg(predicted_timeline(predicted, limit_us), span_us));
    if (fixed) {
      html_.section(fmt::format("Static CP = {} by tokens, predicted", fixed->topology.max_cp),
                    fmt::format("The same samples: {}.", duration(fixed->summary.makespan_us)));
      html_.add(drawing::timeline_svg(predicted_timeline(*fixed, limit_us), span_us));
    }
  }

  void static_beside_dynamic() {
    Series measured{"this run, measured", drawing::kAccent, {}, false};
    Series own{"this run, predicted", drawing::kWarm, {}, false};
    Series fixed{"static CP by tokens, predicted", drawing::kSoft, {}, true};
    for (const SeenStep& seen : seen_) {
      const auto x = static_cast<double>(seen.step);
      measured.points.emplace_back(x, seen.measured_us);
      own.points.emplace_back(x, seen.plan->summary.makespan_us * scale_);
      fixed.points.emplace_back(x, seen.plan->summary.static_makespan_us * scale_);
    }
    html_.section("Static and dynamic, step by step",
                  "Time until the last pack is done, for the same samples." +
                      (scale_ == 1 ? "" : fmt::format(" Predictions times {:.3g}, as above.", scale_)));
    chart("static and dynamic by step", {measured, own, fixed}, drawing::Unit::kTime, true);
  }

  void predicted_beside_measured() {
    struct Tally {
      double measured_us = 0, predicted_us = 0;
      std::vector<double> errors;
    };
    std::map<int, Tally> by_size;
    for (const StepTimeline& timeline : run_.timelines) {
      for (const MeasuredGroup& measured : measured_groups(timeline)) {
        Tally& tally = by_size[measured.group->cp_size.value()];
        const double own_us = measured.end_us - measured.start_us, told_us = measured.group->cost_us * scale_;
        tally.measured_us += own_us;
        tally.predicted_us += told_us;
        tally.errors.push_back(std::abs(told_us / std::max(own_us, 1e-9) - 1));
      }
    }
    if (by_size.empty()) return;
    html_.section("Predicted and measured, by CP size",
                  "Mean time of a pack, from when its last rank joined until its last rank was done.");
    std::vector<std::vector<std::string>> rows;
    for (const auto& [size, tally] : by_size) {
      const auto packs = static_cast<double>(tally.errors.size());
      rows.push_back({fmt::format("CP {}", size), with_thousands(static_cast<int64_t>(tally.errors.size())),
                      duration(tally.measured_us / packs), duration(tally.predicted_us / packs),
                      fmt::format("{:.2f}", tally.measured_us / std::max(tally.predicted_us, 1e-9)),
                      fmt::format("{:.0f} %", 100 * median(tally.errors))});
    }
    html_.table({"", "packs", "measured", "predicted", "measured / predicted", "median error"}, rows);
  }

  void sizes() {
    std::map<int, int64_t> packs;
    std::map<int, double> tokens;
    double all_tokens = 0;
    for (const StepMetrics& metrics : run_.steps) {
      for (const auto& [size, count] : metrics.cp_histogram) packs[size] += count;
      for (const auto& [size, share] : metrics.cp_token_share)
        tokens[size] += share * static_cast<double>(metrics.tokens);
      all_tokens += static_cast<double>(metrics.tokens);
    }
    if (packs.empty()) return;
    html_.section("Tokens by CP size", "Share of the run's tokens that ran at each size, and packs.");
    std::vector<drawing::Bar> bars;
    for (const auto& [size, count] : packs) {
      const double share = all_tokens > 0 ? tokens[size] / all_tokens : 0;
      bars.push_back({fmt::format("CP {}", size), share, 0,
                      fmt::format("{:.1f} %, {} pack{}", 100 * share, with_thousands(count), count == 1 ? "" : "s"),
                      drawing::colour_of(drawing::level_of(CpSize{size}))});
    }
    html_.add(drawing::bars_svg("tokens by CP size", bars));
  }

  void use() {
    if (run_.steps.empty()) return;
    html_.section("Use of the ranks", "Budget: mean load of a pack over --max-tokens-per-gpu. Idle: mean over ranks.");
    chart("budget use and idle share by step",
          {curve("budget used", drawing::kAccent, [](const auto& m) { return m.budget_use; }),
           curve("idle", drawing::kWarm, mean_idle),
           curve("padding", drawing::kSoft, [](const auto& m) { return m.padding_waste; })},
          drawing::Unit::kShare, true);
  }

  const RunPage& page_;
  const RunRecord& run_;
  drawing::Page html_;
  std::vector<SeenStep> seen_;
  double measured_over_predicted_ = kNotANumber;
  double scale_ = 1;  // of predictions, where they are of another machine
};

}  // namespace

std::string run_to_html(const RunPage& page) {
  return RunPageWriter(page).write();
}

}  // namespace ringfold
