#include "ringfold/report/plan_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

namespace ringfold {
namespace {

using Text = std::back_insert_iterator<std::string>;

constexpr double kWidth = 960;  // of every picture, in SVG units
constexpr double kLeft = 64, kRight = 12;

// Colours of CP sizes 1, 2, 4 ...: middle lightness, so that they stand on white and on black. Sizes above take the
// last.
constexpr const char* kColours[] = {"#5b8fd6", "#2fa39a", "#6fae3f", "#d9a514",
                                    "#e8792b", "#d64a5f", "#b0509b", "#7d63c9"};
constexpr size_t kColourCount = std::size(kColours);

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--page:#fbfbfa;--ink:#1c1e21;--soft:#62676e;--line:#d9dbde;--lane:#eceeef;--accent:#2b6cb0}
@media (prefers-color-scheme:dark){:root{--page:#15171a;--ink:#e7e9ec;--soft:#9aa1aa;--line:#353a41;--lane:#22262b;--accent:#7db4f0}}
*{box-sizing:border-box}
body{margin:0 auto;padding:28px 20px 48px;max-width:1040px;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:22px;line-height:1.3;margin:0 0 4px}h2{font-size:16px;margin:32px 0 6px}
p{margin:4px 0 10px;color:var(--soft)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:1px;margin:18px 0 4px;background:var(--line);border:1px solid var(--line);border-radius:6px;overflow:hidden}
.facts div{background:var(--page);padding:10px 12px}.facts b{display:block;font-size:20px;font-variant-numeric:tabular-nums}.facts span{color:var(--soft);font-size:13px}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{fill:var(--soft);font:11px system-ui,sans-serif}svg .name{fill:var(--ink);font-size:12px}svg .in{fill:#fff;font-size:11px;font-weight:600;pointer-events:none}
.lane{fill:var(--lane)}.tick{stroke:var(--line)}.limit{stroke:var(--ink);stroke-dasharray:4 3}
.pack{stroke:var(--page);stroke-width:.6}.pack:hover{stroke:var(--ink);stroke-width:1.5}
.key{display:flex;flex-wrap:wrap;gap:4px 16px;margin:6px 0;color:var(--soft);font-size:13px}.key i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:5px}
)";

size_t level_of(CpSize c) {
  return static_cast<size_t>(std::countr_zero(static_cast<unsigned>(c.value())));
}

const char* colour_of(size_t level) {
  return kColours[std::min(level, kColourCount - 1)];
}

std::string with_thousands(int64_t value) {
  std::string digits = fmt::format("{}", value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

std::string duration(double us) {
  return us >= 1e6 ? fmt::format("{:.2f} s", us / 1e6) : fmt::format("{:.0f} ms", us / 1e3);
}

double end_of(const Plan& plan) {
  return plan.summary.makespan_us;
}

// A round step so that about eight ticks cover the time.
double tick_step(double us) {
  const double rough = std::max(us, 1.0) / 8;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

class Page {
 public:
  explicit Page(const PlanPage& page) : page_(page), plan_(page.plan), out_(html_) {}

  std::string write() {
    fmt::format_to(out_,
                   "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                   "content=\"width=device-width\"><title>Ringfold plan</title><style>{}</style></head><body>\n",
                   kStyle);
    headline();
    facts();
    policies();
    timelines();
    sizes();
    html_ += "</body></html>\n";
    return std::move(html_);
  }

 private:
  void headline() {
    const double gain = end_of(page_.baseline) / std::max(end_of(plan_), 1e-9);
    const Topology& t = plan_.topology;
    const std::string what = gain >= 1.005   ? fmt::format("{:.2f}× faster than static CP = {}", gain, t.max_cp)
                             : gain <= 0.995 ? fmt::format("{:.2f}× the time of static CP = {}", 1 / gain, t.max_cp)
                                             : fmt::format("as fast as static CP = {}", t.max_cp);
    fmt::format_to(out_, "<h1>One step: {} predicted, {}</h1>\n", duration(end_of(plan_)), what);
    size_t samples = 0;
    for (const MicroStep& step : plan_.micro_steps) {
      for (const PlannedGroup& group : step.groups) samples += group.samples.size();
    }
    fmt::format_to(
        out_, "<p>{} samples, {} tokens on {} ranks (tp {} × pp {} × dp {} × cp {}), {}; policy {}, {}.</p>\n",
        with_thousands(static_cast<int64_t>(samples)), with_thousands(plan_.summary.tokens), t.world_size, t.tp, t.pp,
        t.dp, t.max_cp,
        plan_.budget > 0 ? fmt::format("{} tokens per GPU", with_thousands(plan_.budget)) : "no token budget",
        to_string(t.policy), to_string(t.execution));
  }

  static double idle_share(const Plan& plan) {
    double busy = 0;
    for (const MicroStep& step : plan.micro_steps) {
      for (const PlannedGroup& group : step.groups) busy += group.cost_us * group.cp_size.value();
    }
    const double all = end_of(plan) * plan.topology.lane_size();
    return all > 0 ? 1 - busy / all : 0;
  }

  void fact(const std::string& value, const std::string& meaning) {
    fmt::format_to(out_, "<div><b>{}</b><span>{}</span></div>", value, meaning);
  }

  void facts() {
    const PlanSummary& s = plan_.summary;
    html_ += "<div class=\"facts\">";
    fact(duration(s.makespan_us), "predicted step");
    fact(duration(end_of(page_.baseline)), "static CP by tokens");
    fact(fmt::format("{:.0f} %", 100 * s.lower_bound_us / std::max(s.makespan_us, 1e-9)), "of the physical limit");
    fact(fmt::format("{:.1f} %", 100 * idle_share(plan_)),
         fmt::format("idle (static: {:.1f} %)", 100 * idle_share(page_.baseline)));
    fact(fmt::format("{:.2f} %", 100 * s.padding_waste), "padding");
    html_ += "</div>\n";
  }

  void policies() {
    if (page_.policies.size() < 2) return;
    constexpr double kRow = 24, kNames = 210, kValues = 120;
    double longest = plan_.summary.lower_bound_us;
    for (const auto& policy : page_.policies) longest = std::max(longest, policy.step_us);
    const double height = kRow * static_cast<double>(page_.policies.size()) + 18;
    const double scale = (kWidth - kNames - kValues) / std::max(longest, 1e-9);
    html_ +=
        "<h2>Predicted step by policy</h2><p>Shorter is better; this page's plan is in colour. The dashed line is the "
        "physical limit T*.</p>\n";
    fmt::format_to(out_, "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"step time by policy\">", kWidth, height);
    double y = 0;
    for (const auto& policy : page_.policies) {
      fmt::format_to(out_,
                     "<text class=\"name\" x=\"0\" y=\"{:.1f}\">{}</text><rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" "
                     "height=\"{}\" rx=\"2\" fill=\"var({})\"/><text x=\"{:.1f}\" y=\"{:.1f}\">{} ({:.2f} T*)</text>",
                     y + 15, policy.name, kNames, y + 3, policy.step_us * scale, kRow - 8,
                     policy.shown ? "--accent" : "--soft", kNames + policy.step_us * scale + 6, y + 15,
                     duration(policy.step_us), policy.step_us / std::max(plan_.summary.lower_bound_us, 1e-9));
      y += kRow;
    }
    const double limit = kNames + plan_.summary.lower_bound_us * scale;
    fmt::format_to(out_, "<line class=\"limit\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.1f}\"/></svg>\n", limit,
                   y);
  }

  void timelines() {
    const double span_us = std::max(end_of(plan_), end_of(page_.baseline));
    html_ +=
        "<h2>Who runs what, when</h2><p>One row a rank, one box a pack, as wide as its predicted time and as high "
        "as its CP group; grey is idle. Point at a box for its samples. Both pictures have the same time scale.</p>\n";
    legend();
    html_ += "<h2>This plan</h2>\n";
    timeline(plan_, span_us);
    fmt::format_to(out_, "<h2>Static CP = {} by tokens</h2>\n", page_.baseline.topology.max_cp);
    timeline(page_.baseline, span_us);
  }

  void legend() {
    size_t most = 0;
    for (const Plan* plan : {&plan_, &page_.baseline}) {
      for (const MicroStep& step : plan->micro_steps) {
        for (const PlannedGroup& group : step.groups) most = std::max(most, level_of(group.cp_size));
      }
    }
    html_ += "<div class=\"key\">";
    for (size_t level = 0; level <= most; ++level) {
      fmt::format_to(out_, "<span><i style=\"background:{}\"></i>CP {}</span>", colour_of(level), 1 << level);
    }
    html_ += "<span>┆ physical limit T*</span></div>\n";
  }

  void timeline(const Plan& plan, double span_us) {
    const int ranks = plan.topology.lane_size();
    const double row = std::clamp(420.0 / ranks, 1.5, 26.0);
    const double bottom = row * ranks;
    const double scale = (kWidth - kLeft - kRight) / std::max(span_us, 1e-9);
    fmt::format_to(out_, "<svg viewBox=\"0 0 {} {:.1f}\" role=\"img\" aria-label=\"timeline of the ranks\">", kWidth,
                   bottom + 22);
    fmt::format_to(out_, "<rect class=\"lane\" x=\"{}\" y=\"0\" width=\"{:.1f}\" height=\"{:.1f}\"/>", kLeft,
                   end_of(plan) * scale, bottom);
    const int every = std::max(1, static_cast<int>(std::ceil(13 / row)));
    for (int r = 0; r < ranks; r += std::bit_ceil(static_cast<unsigned>(every))) {
      fmt::format_to(out_, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">rank {}</text>", kLeft - 8,
                     r * row + std::min(row, 20.0) / 2 + 4, r);
    }
    for (double us = 0; us <= span_us * 1.0001; us += tick_step(span_us)) {
      fmt::format_to(out_,
                     "<line class=\"tick\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.1f}\"/><text x=\"{0:.1f}\" "
                     "y=\"{2:.1f}\" text-anchor=\"middle\">{3}</text>",
                     kLeft + us * scale, bottom + 4, bottom + 17, us == 0 ? "0" : duration(us));
    }
    for (const MicroStep& step : plan.micro_steps) {
      for (const PlannedGroup& group : step.groups) pack(plan, group, row, scale);
    }
    fmt::format_to(out_, "<line class=\"limit\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"-4\" y2=\"{1:.1f}\"/></svg>\n",
                   kLeft + plan_.summary.lower_bound_us * scale, bottom + 4);
  }

  void pack(const Plan& plan, const PlannedGroup& group, double row, double scale) {
    constexpr size_t kIdsShown = 10;
    std::string ids;
    for (size_t i = 0; i < std::min(group.samples.size(), kIdsShown); ++i) {
      fmt::format_to(Text(ids), "\nsample {}: {} tokens", group.samples[i].value(), with_thousands(group.lengths[i]));
    }
    if (group.samples.size() > kIdsShown) fmt::format_to(Text(ids), "\n... {} more", group.samples.size() - kIdsShown);
    const int c = group.cp_size.value(), first = group.first_rank.value();
    const double x = kLeft + group.start_us * scale, y = first * row;
    const double width = group.cost_us * scale, height = c * row;
    const std::string use =
        plan.budget > 0 ? fmt::format(" ({:.0f} % of the budget)", 100.0 * static_cast<double>(group.padded_tokens[0]) /
                                                                       static_cast<double>(plan.budget))
                        : "";
    fmt::format_to(out_,
                   "<rect class=\"pack\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\">"
                   "<title>CP {} on rank{} {}{}, {} to {}\n{} tokens per GPU{}{}</title></rect>",
                   x, y, width, height, colour_of(level_of(group.cp_size)), c, c > 1 ? "s" : "", first,
                   c > 1 ? fmt::format("-{}", first + c - 1) : "", duration(group.start_us),
                   duration(group.start_us + group.cost_us), with_thousands(group.padded_tokens[0]), use, ids);
    if (width > 26 && height > 13) {
      fmt::format_to(out_, "<text class=\"in\" x=\"{:.1f}\" y=\"{:.1f}\">cp {}</text>", x + 4, y + height / 2 + 3.5, c);
    }
  }

  void sizes() {
    constexpr double kRow = 24, kNames = 60, kValues = 190;
    const auto& shares = plan_.summary.cp_token_share;
    const auto& before = page_.baseline.summary.cp_token_share;
    const size_t rows = std::max(shares.size(), before.size());
    std::vector<int64_t> groups(rows, 0);
    for (const MicroStep& step : plan_.micro_steps) {
      for (const PlannedGroup& group : step.groups) ++groups[level_of(group.cp_size)];
    }
    html_ +=
        "<h2>Tokens by CP size</h2><p>Share of the step's tokens that this plan runs at each size; the outline is "
        "static CP.</p>\n";
    fmt::format_to(out_, "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"tokens by CP size\">", kWidth,
                   kRow * static_cast<double>(rows) + 4);
    const double scale = kWidth - kNames - kValues;
    for (size_t level = 0; level < rows; ++level) {
      const double share = level < shares.size() ? shares[level] : 0, old = level < before.size() ? before[level] : 0;
      const double y = kRow * static_cast<double>(level);
      fmt::format_to(out_, "<text class=\"name\" x=\"0\" y=\"{:.1f}\">CP {}</text>", y + 15, 1 << level);
      fmt::format_to(out_, "<rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\" fill=\"{}\"/>", kNames,
                     y + 3, share * scale, kRow - 8, colour_of(level));
      if (old > 0) {
        fmt::format_to(out_,
                       "<rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\" fill=\"none\" "
                       "stroke=\"var(--soft)\" stroke-dasharray=\"3 3\"/>",
                       kNames, y + 1, old * scale, kRow - 4);
      }
      fmt::format_to(out_, "<text x=\"{:.1f}\" y=\"{:.1f}\">{:.1f} %, {} pack{}</text>",
                     kNames + std::max(share, old) * scale + 8, y + 15, 100 * share, with_thousands(groups[level]),
                     groups[level] == 1 ? "" : "s");
    }
    html_ += "</svg>\n";
  }

  const PlanPage& page_;
  const Plan& plan_;
  std::string html_;
  Text out_;
};

}  // namespace

std::string plan_to_html(const PlanPage& page) {
  return Page(page).write();
}

}  // namespace ringfold
