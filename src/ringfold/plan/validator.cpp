// Written from the rules alone: calls nothing of the planner, nor its helpers for lengths, loads and times.
#include "ringfold/plan/validator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>

namespace ringfold {
namespace {

bool power_of_two(int value) {
  return value >= 1 && (value & (value - 1)) == 0;
}

// Per-rank tokens of a sample, by walking the 2c chunks of its zigzag layout.
struct Shares {
  int64_t chunk = 0;
  std::vector<int64_t> real;
};

Shares zigzag_shares(int64_t tokens, int c) {
  Shares shares;
  shares.real.assign(static_cast<size_t>(c), 0);
  if (c == 1) {
    shares.real[0] = tokens;
    return shares;
  }
  shares.chunk = tokens / (2 * c) + (tokens % (2 * c) != 0 ? 1 : 0);
  int64_t left = tokens;
  for (int chunk = 0; chunk < 2 * c && left > 0; ++chunk) {
    const int64_t held = left < shares.chunk ? left : shares.chunk;
    shares.real[static_cast<size_t>(chunk < c ? chunk : 2 * c - 1 - chunk)] += held;
    left -= held;
  }
  return shares;
}

class Checker {
 public:
  Checker(const PlanRequest& request, const Plan& plan) : request_(request), plan_(plan) {}

  std::vector<std::string> run() {
    check_topology();
    for (size_t k = 0; k < plan_.micro_steps.size(); ++k) check_step(k, plan_.micro_steps[k]);
    check_samples();
    check_summary();
    return std::move(found_);
  }

 private:
  template <typename... Args>
  void report(fmt::format_string<Args...> text, Args&&... args) {
    found_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  void check_topology() {
    const Topology& asked = request_.topology;
    const Topology& got = plan_.topology;
    if (got.world_size != asked.world_size || got.tp != asked.tp || got.pp != asked.pp || got.dp != asked.dp ||
        got.max_cp != asked.max_cp || got.policy != asked.policy || got.execution != asked.execution) {
      report("the plan's topology is not the request's");
    }
    if (plan_.budget != request_.budget) report("budget is {}, requested {}", plan_.budget, request_.budget);
    if (!power_of_two(asked.max_cp)) report("largest CP size {} is not a power of two", asked.max_cp);
    if (int64_t{asked.world_size} != int64_t{asked.tp} * asked.pp * asked.dp * asked.max_cp) {
      report("world size {} is not tp*pp*dp*cp", asked.world_size);
    }
    for (const SampleLength& sample : request_.samples) {
      if (!length_of_.emplace(sample.id.value(), sample.tokens).second) {
        report("sample {} is requested twice", sample.id.value());
      }
    }
  }

  void check_step(size_t k, const MicroStep& step) {
    if (step.groups.empty()) report("micro-step {} has no groups", k);
    std::vector<int> holder(static_cast<size_t>(request_.topology.lane_size()), 0);
    int previous_first = -1;
    for (const PlannedGroup& group : step.groups) {
      const int first = group.first_rank.value();
      const std::string name = fmt::format("micro-step {}, group at rank {}", k, first);
      if (first <= previous_first) report("{}: groups are not listed by first rank", name);
      previous_first = first;
      if (!check_block(name, group)) continue;
      for (int r = first; r < first + group.cp_size.value(); ++r) {
        if (holder[static_cast<size_t>(r)]++ > 0) report("{}: rank {} is in two groups", name, r);
      }
      check_group(name, group);
      if (group.cp_size != step.groups.front().cp_size && request_.topology.policy == CpPolicy::kUniform) {
        report("{}: CP size {} differs from the micro-step's {}", name, group.cp_size.value(),
               step.groups.front().cp_size.value());
      }
    }
    std::set<int> idle;
    for (const LaneRank rank : step.idle_ranks) {
      if (!idle.insert(rank.value()).second) report("micro-step {}: rank {} is idle twice", k, rank.value());
    }
    for (size_t r = 0; r < holder.size(); ++r) {
      if ((holder[r] == 0) != (idle.count(static_cast<int>(r)) == 1)) {
        report("micro-step {}: rank {} is {}", k, r,
               holder[r] == 0 ? "neither in a group nor idle" : "in a group and idle");
      }
      idle.erase(static_cast<int>(r));
    }
    if (!idle.empty()) report("micro-step {}: idle rank {} is outside the lane", k, *idle.begin());
  }

  bool check_block(const std::string& name, const PlannedGroup& group) {
    const int c = group.cp_size.value();
    const int first = group.first_rank.value();
    if (!power_of_two(c)) {
      report("{}: CP size {} is not a power of two", name, c);
      return false;
    }
    if (first < 0 || first + c > request_.topology.lane_size()) {
      report("{}: ranks {}..{} are outside the lane of {}", name, first, first + c - 1, request_.topology.lane_size());
      return false;
    }
    if (first % c != 0) report("{}: start is not a multiple of CP size {}", name, c);
    const Topology& t = request_.topology;
    if (t.policy == CpPolicy::kStatic && c != t.max_cp) report("{}: CP size {} under static CP {}", name, c, t.max_cp);
    if (t.policy == CpPolicy::kUniform && c > t.max_cp)
      report("{}: CP size {} above the largest {}", name, c, t.max_cp);
    if (t.head_cp_limit > 0 && c > t.head_cp_limit)
      report("{}: CP size {} above the {} that the heads allow", name, c, t.head_cp_limit);
    return true;
  }

  void check_group(const std::string& name, const PlannedGroup& group) {
    if (group.samples.empty()) report("{}: has no samples", name);
    if (group.lengths.size() != group.samples.size()) {
      report("{}: {} lengths for {} samples", name, group.lengths.size(), group.samples.size());
      return;
    }
    const int c = group.cp_size.value();
    std::vector<int64_t> real(static_cast<size_t>(c), 0);
    int64_t load = 0;
    for (size_t i = 0; i < group.samples.size(); ++i) {
      const int64_t id = group.samples[i].value();
      ++times_planned_[id];
      const auto known = length_of_.find(id);
      if (known == length_of_.end()) {
        report("{}: sample {} was not requested", name, id);
        return;
      }
      if (group.lengths[i] != known->second) {
        report("{}: sample {} has {} tokens, planned as {}", name, id, known->second, group.lengths[i]);
      }
      if (i > 0 && group.samples[i - 1] >= group.samples[i]) report("{}: samples are not in ascending order", name);
      const Shares shares = zigzag_shares(known->second, c);
      for (size_t r = 0; r < real.size(); ++r) real[r] += shares.real[r];
      load += c == 1 ? known->second : 2 * shares.chunk;
      tokens_ += known->second;
    }
    if (group.real_tokens != real) report("{}: real tokens of the ranks are wrong", name);
    if (group.padded_tokens != std::vector<int64_t>(static_cast<size_t>(c), load)) {
      report("{}: padded tokens of the ranks are wrong, expected {}", name, load);
    }
    check_load(name, group, load);
    if (group.order != next_order_++) report("{}: order {} is not its position in the list", name, group.order);
  }

  void check_load(const std::string& name, const PlannedGroup& group, int64_t load) {
    const int64_t budget = request_.budget;
    if (budget == 0) {
      if (group.samples.size() != 1) report("{}: {} samples without a budget", name, group.samples.size());
      return;
    }
    const bool own_padding_only =
        group.samples.size() == 1 && length_of_.at(group.samples[0].value()) <= budget * group.cp_size.value();
    if (load > budget && !own_padding_only) report("{}: {} tokens per GPU exceed the budget of {}", name, load, budget);
  }

  void check_samples() {
    for (const auto& [id, length] : length_of_) {
      const auto planned = times_planned_.find(id);
      const int times = planned == times_planned_.end() ? 0 : planned->second;
      if (times != 1) report("sample {} is planned {} times", id, times);
    }
  }

  void check_summary() {
    const PlanSummary& s = plan_.summary;
    if (s.tokens != tokens_) report("summary counts {} tokens, the groups hold {}", s.tokens, tokens_);
    const double makespan_us = request_.topology.execution == Execution::kFree ? replay_queues() : replay_steps();
    const double slack = 1e-9 * makespan_us + 1e-9;
    if (std::fabs(makespan_us - s.makespan_us) > slack)
      report("makespan {} us, running the groups takes {}", s.makespan_us, makespan_us);
    if (s.lower_bound_us > makespan_us + slack)
      report("makespan {} us is below the bound {}", makespan_us, s.lower_bound_us);
  }

  // Lockstep: a micro-step starts when the slowest group of the one before is done.
  double replay_steps() {
    double now_us = 0;
    for (const MicroStep& step : plan_.micro_steps) {
      double slowest_us = 0;
      for (const PlannedGroup& group : step.groups) {
        check_start(group, now_us);
        slowest_us = std::fmax(slowest_us, group.cost_us);
      }
      now_us += slowest_us;
    }
    return now_us;
  }

  // Free: every rank has the queue of its groups in list order; a group runs once it is the next of all its members.
  // What never becomes so is a deadlock. Returns when the last group ends.
  double replay_queues() {
    const size_t lane = static_cast<size_t>(request_.topology.lane_size());
    std::vector<std::deque<const PlannedGroup*>> queues(lane);
    size_t waiting = 0;
    for (const MicroStep& step : plan_.micro_steps) {
      for (const PlannedGroup& group : step.groups) {
        ++waiting;
        for (size_t r = first_of(group); r < end_of(group); ++r) queues[r].push_back(&group);
      }
    }
    std::vector<double> ready_us(lane, 0.0);
    double end_us = 0;
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t r = 0; r < lane; ++r) {
        while (!queues[r].empty() && is_next_of_all(*queues[r].front(), queues)) {
          end_us = std::fmax(end_us, run(*queues[r].front(), queues, ready_us));
          progress = true;
          --waiting;
        }
      }
    }
    if (waiting > 0) report("{} groups never meet: their ranks' queues disagree on the order", waiting);
    return end_us;
  }

  // The group's ranks, as far as they are in the lane.
  size_t first_of(const PlannedGroup& group) const {
    return static_cast<size_t>(std::clamp(group.first_rank.value(), 0, request_.topology.lane_size()));
  }
  size_t end_of(const PlannedGroup& group) const {
    return static_cast<size_t>(
        std::clamp(group.first_rank.value() + group.cp_size.value(), 0, request_.topology.lane_size()));
  }

  bool is_next_of_all(const PlannedGroup& group, const std::vector<std::deque<const PlannedGroup*>>& queues) const {
    for (size_t r = first_of(group); r < end_of(group); ++r) {
      if (queues[r].empty() || queues[r].front() != &group) return false;
    }
    return true;
  }

  // Takes the group off its members' queues; returns when it ends.
  double run(const PlannedGroup& group, std::vector<std::deque<const PlannedGroup*>>& queues,
             std::vector<double>& ready_us) {
    double start_us = 0;
    for (size_t r = first_of(group); r < end_of(group); ++r) start_us = std::fmax(start_us, ready_us[r]);
    check_start(group, start_us);
    for (size_t r = first_of(group); r < end_of(group); ++r) {
      ready_us[r] = start_us + group.cost_us;
      queues[r].pop_front();
    }
    return start_us + group.cost_us;
  }

  void check_start(const PlannedGroup& group, double earliest_us) {
    if (std::fabs(group.start_us - earliest_us) <= 1e-9 * earliest_us + 1e-9) return;
    report("group {} starts at {} us, its ranks are free at {}", group.order, group.start_us, earliest_us);
  }

  const PlanRequest& request_;
  const Plan& plan_;
  std::vector<std::string> found_;
  std::map<int64_t, int64_t> length_of_;
  std::map<int64_t, int> times_planned_;
  int64_t tokens_ = 0;
  int next_order_ = 0;
};

}  // namespace

std::vector<std::string> plan_violations(const PlanRequest& request, const Plan& plan) {
  return Checker(request, plan).run();
}

}  // namespace ringfold
