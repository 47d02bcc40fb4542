#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ringfold/plan/plan.h"

namespace ringfold {
namespace {

constexpr size_t kIdsShown = 12;

using Text = std::back_insert_iterator<std::string>;

std::string with_thousands(int64_t value) {
  std::string digits = fmt::format("{}", value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

std::string milliseconds(double us) {
  return fmt::format("{:.1f} ms", us / 1e3);
}

std::string_view plural(size_t count) {
  return count == 1 ? "" : "s";
}

std::string rank_range(int first, int last) {
  return first == last ? fmt::format("rank {}", first) : fmt::format("ranks {}-{}", first, last);
}

std::string sample_ids(const std::vector<SampleId>& ids) {
  std::string text;
  for (size_t i = 0; i < std::min(ids.size(), kIdsShown); ++i) fmt::format_to(Text(text), " {}", ids[i].value());
  if (ids.size() > kIdsShown) fmt::format_to(Text(text), " ... ({} more)", ids.size() - kIdsShown);
  return text;
}

std::string idle_ranges(const std::vector<LaneRank>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end].value() == ranks[end - 1].value() + 1) ++end;
    fmt::format_to(Text(text), "{}{}", text.empty() ? "" : ", ", rank_range(ranks[i].value(), ranks[end - 1].value()));
    i = end;
  }
  return text;
}

void print_group(Text out, const PlannedGroup& group, int64_t budget) {
  const int first = group.first_rank.value();
  const int c = group.cp_size.value();
  const int64_t load = group.padded_tokens.front();
  const std::string use =
      budget > 0 ? fmt::format(" ({:3.0f} %)", 100.0 * static_cast<double>(load) / static_cast<double>(budget)) : "";
  fmt::format_to(out, "  c={:<3} {:<13} {:>9} tokens per GPU{}  {:>10}  {} sample{}:{}\n", c,
                 rank_range(first, first + c - 1), with_thousands(load), use, milliseconds(group.cost_us),
                 group.samples.size(), plural(group.samples.size()), sample_ids(group.samples));
}

void print_step(Text out, const MicroStep& step, size_t index, int64_t budget) {
  double slowest_us = 0;
  for (const PlannedGroup& group : step.groups) slowest_us = std::max(slowest_us, group.cost_us);
  fmt::format_to(out, "\nmicro-step {} ({})\n", index, milliseconds(slowest_us));
  for (const PlannedGroup& group : step.groups) print_group(out, group, budget);
  if (!step.idle_ranks.empty()) fmt::format_to(out, "  idle  {}\n", idle_ranges(step.idle_ranks));
}

void print_summary(Text out, const Plan& plan) {
  const PlanSummary& s = plan.summary;
  std::string shares;
  for (size_t l = 0; l < s.cp_token_share.size(); ++l) {
    fmt::format_to(Text(shares), "{}c={} {:.1f} %", l == 0 ? "" : ", ", 1 << l, 100 * s.cp_token_share[l]);
  }
  fmt::format_to(out, "\ntokens by CP size  {}\n", shares);
  fmt::format_to(out, "padding            {:.2f} % of {} tokens\n", 100 * s.padding_waste, with_thousands(s.tokens));
  fmt::format_to(out, "predicted step     {}\n", milliseconds(s.makespan_us));
  fmt::format_to(out, "static CP = {:<6} {} by tokens", plan.topology.max_cp, milliseconds(s.static_makespan_us));
  if (s.makespan_us > 0) fmt::format_to(out, " ({:.2f}x this plan)", s.static_makespan_us / s.makespan_us);
  fmt::format_to(out, "\nlower bound        {}\n", milliseconds(s.lower_bound_us));
}

}  // namespace

std::string plan_to_text(const Plan& plan) {
  const Topology& t = plan.topology;
  size_t samples = 0;
  for (const MicroStep& step : plan.micro_steps) {
    for (const PlannedGroup& group : step.groups) samples += group.samples.size();
  }
  std::string text;
  const Text out(text);
  fmt::format_to(out, "{} samples, {} tokens in {} micro-step{}: policy {}, {}\n",
                 with_thousands(static_cast<int64_t>(samples)), with_thousands(plan.summary.tokens),
                 plan.micro_steps.size(), plural(plan.micro_steps.size()), to_string(t.policy), to_string(t.execution));
  fmt::format_to(out, "world {} = tp {} x pp {} x dp {} x cp {}; {}\n", t.world_size, t.tp, t.pp, t.dp, t.max_cp,
                 plan.budget > 0 ? fmt::format("budget {} tokens per GPU", with_thousands(plan.budget))
                                 : std::string("no token budget: one sample a pack"));
  for (size_t k = 0; k < plan.micro_steps.size(); ++k) print_step(out, plan.micro_steps[k], k, plan.budget);
  print_summary(out, plan);
  return text;
}

}  // namespace ringfold
