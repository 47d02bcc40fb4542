#include "ringfold/report/plan_html.h"

#include <fmt/format.h>

#include <algorithm>

#include "ringfold/report/drawing.h"
#include "ringfold/report/plan_timeline.h"

namespace ringfold {
namespace {

using drawing::duration;
using drawing::with_thousands;

class PlanPageWriter {
 public:
  explicit PlanPageWriter(const PlanPage& page) : page_(page), plan_(page.plan), html_("Ringfold plan") {}

  std::string write() {
    headline();
    facts();
    policies();
    timelines();
    sizes();
    return html_.finish();
  }

 private:
  static double end_of(const Plan& plan) { return plan.summary.makespan_us; }
  static double at_least(double value) { return std::max(value, 1e-9); }

  void headline() {
    const double gain = end_of(page_.baseline) / at_least(end_of(plan_));
    const Topology& t = plan_.topology;
    const std::string what = gain >= 1.005   ? fmt::format("{:.2f}× faster than static CP = {}", gain, t.max_cp)
                             : gain <= 0.995 ? fmt::format("{:.2f}× the time of static CP = {}", 1 / gain, t.max_cp)
                                             : fmt::format("as fast as static CP = {}", t.max_cp);
    html_.headline(fmt::format("One step: {} predicted, {}", duration(end_of(plan_)), what));
    size_t samples = 0;
    for (const MicroStep& step : plan_.micro_steps) {
      for (const PlannedGroup& group : step.groups) samples += group.samples.size();
    }
    html_.paragraph(fmt::format(
        "{} samples, {} tokens on {} ranks (tp {} × pp {} × dp {} × cp {}), {}; policy {}, {}.",
        with_thousands(static_cast<int64_t>(samples)), with_thousands(plan_.summary.tokens), t.world_size, t.tp, t.pp,
        t.dp, t.max_cp,
        plan_.budget > 0 ? fmt::format("{} tokens per GPU", with_thousands(plan_.budget)) : "no token budget",
        to_string(t.policy), to_string(t.execution)));
  }

  void facts() {
    const PlanSummary& s = plan_.summary;
    html_.facts({{duration(s.makespan_us), "predicted step"},
                 {duration(end_of(page_.baseline)), "static CP by tokens"},
                 {fmt::format("{:.0f} %", 100 * s.lower_bound_us / at_least(s.makespan_us)), "of the physical limit"},
                 {fmt::format("{:.1f} %", 100 * predicted_idle_share(plan_)),
                  fmt::format("idle (static: {:.1f} %)", 100 * predicted_idle_share(page_.baseline))},
                 {fmt::format("{:.2f} %", 100 * s.padding_waste), "padding"}});
  }

  void policies() {
    if (page_.policies.size() < 2) return;
    html_.section("Predicted step by policy",
                  "Shorter is better; this page's plan is in colour. The dashed line is the physical limit T*.");
    std::vector<drawing::Bar> bars;
    for (const auto& policy : page_.policies) {
      bars.push_back({policy.name, policy.step_us, 0,
                      fmt::format("{} ({:.2f} T*)", duration(policy.step_us),
                                  policy.step_us / at_least(plan_.summary.lower_bound_us)),
                      policy.shown ? drawing::kAccent : drawing::kSoft});
    }
    html_.add(drawing::bars_svg("step time by policy", bars, plan_.summary.lower_bound_us));
  }

  void timelines() {
    const double span_us = std::max(end_of(plan_), end_of(page_.baseline));
    html_.section("Who runs what, when",
                  "One row a rank, one box a pack, as wide as its predicted time and as high as its CP group; grey is "
                  "idle. Point at a box for its samples. Both pictures have the same time scale.");
    html_.add(drawing::size_key(std::max(widest_level(plan_), widest_level(page_.baseline)), true));
    html_.section("This plan");
    html_.add(drawing::timeline_svg(predicted_timeline(plan_, plan_.summary.lower_bound_us), span_us));
    html_.section(fmt::format("Static CP = {} by tokens", page_.baseline.topology.max_cp));
    html_.add(drawing::timeline_svg(predicted_timeline(page_.baseline, plan_.summary.lower_bound_us), span_us));
  }

  void sizes() {
    const auto& shares = plan_.summary.cp_token_share;
    const auto& before = page_.baseline.summary.cp_token_share;
    const size_t rows = std::max(shares.size(), before.size());
    const std::vector<int64_t> packs = packs_by_level(plan_, rows);
    html_.section("Tokens by CP size",
                  "Share of the step's tokens that this plan runs at each size; the outline is static CP.");
    std::vector<drawing::Bar> bars;
    for (size_t level = 0; level < rows; ++level) {
      const double share = level < shares.size() ? shares[level] : 0, old = level < before.size() ? before[level] : 0;
      bars.push_back(
          {fmt::format("CP {}", 1 << level), share, old,
           fmt::format("{:.1f} %, {} pack{}", 100 * share, with_thousands(packs[level]), packs[level] == 1 ? "" : "s"),
           drawing::colour_of(level)});
    }
    html_.add(drawing::bars_svg("tokens by CP size", bars));
  }

  const PlanPage& page_;
  const Plan& plan_;
  drawing::Page html_;
};

}  // namespace

std::string plan_to_html(const PlanPage& page) {
  return PlanPageWriter(page).write();
}

}  // namespace ringfold
