#include "ringfold/train/calibration.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ringfold/report/cost_model_file.h"
#include "ringfold/train/random_samples.h"
#include "ringfold/train/setup.h"

namespace ringfold {
namespace {

constexpr size_t kFewestPacks = 3;  // that calibrate() takes

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The pack on every aligned group of its size, `runs` micro-steps on end.
Plan plan_of(const CalibrationPack& pack, const Topology& topology, int64_t runs) {
  const CpSize c = pack.cp_size;
  MicroStep micro_step;
  for (int first = 0; first + c.value() <= topology.lane_size(); first += c.value()) {
    PlannedGroup group;
    group.cp_size = c;
    group.first_rank = LaneRank(first);
    int64_t load = 0;
    for (size_t i = 0; i < pack.lengths.size(); ++i) {
      group.samples.emplace_back(static_cast<int64_t>(i));
      group.lengths.push_back(pack.lengths[i]);
      load += padded_length(pack.lengths[i], c) / c.value();
    }
    group.padded_tokens.assign(static_cast<size_t>(c.value()), load);
    micro_step.groups.push_back(std::move(group));
  }
  Plan plan;
  plan.topology = topology;
  plan.micro_steps.assign(static_cast<size_t>(runs), micro_step);
  return plan;
}

// Per run, the time of the slowest rank; ranks without a group do not count.
std::vector<double> slowest_rank_us(Session& session, const std::vector<StreamTimer::Span>& spans, int64_t runs) {
  at::Tensor times = at::zeros({runs}, at::kDouble);
  for (size_t run = 0; run < spans.size(); ++run) {
    times.mutable_data_ptr<double>()[run] = spans[run].end_us - spans[run].begin_us;
  }
  session.collectives().all_reduce_max(times, "times of a pack");
  return {times.const_data_ptr<double>(), times.const_data_ptr<double>() + runs};
}

// The model that the fit starts from, with attention rates down to the shortest chunk measured: on CPUs they do not
// fall off as on the GPU that it is of.
CostModel with_short_chunks(CostModel model, const std::vector<MeasuredPack>& measured) {
  double shortest = model.rate_length_tokens.front();
  for (const MeasuredPack& m : measured) {
    for (const int64_t length : m.pack.lengths) {
      shortest = std::min(shortest, static_cast<double>(length) / m.pack.cp_size.value());
    }
  }
  std::vector<double>&lengths = model.rate_length_tokens, &rates = model.rate_flops_per_us;
  while (lengths.front() / 2 >= std::max(shortest, 1.0)) {
    lengths.insert(lengths.begin(), lengths.front() / 2);
    rates.insert(rates.begin(), rates.front() / 2);
  }
  return model;
}

std::string describe(const CalibrationPack& pack) {
  return fmt::format("{} x {}", pack.lengths.size(), pack.lengths.front());
}

void print_json(const Session& session, const BenchSettings& bench, const std::vector<TimedPack>& timed,
                const Calibration& fit) {
  nlohmann::ordered_json packs = nlohmann::ordered_json::array();
  for (const TimedPack& t : timed) {
    const CalibrationPack& pack = t.measured.pack;
    packs.push_back({{"cp_size", pack.cp_size.value()},
                     {"lengths", pack.lengths},
                     {"measured_us", t.measured.us},
                     {"spread", t.spread},
                     {"fitted_us", fit.model.pack_us(pack.lengths, pack.cp_size)}});
  }
  const nlohmann::ordered_json out = {{"schema", 1},
                                      {"world_size", session.env.world_size},
                                      {"file", bench.calibrate},
                                      {"packs", std::move(packs)},
                                      {"median_error", fit.median_error},
                                      {"worst_error", fit.worst_error},
                                      {"outliers", fit.outliers},
                                      {"unmeasured", fit.unmeasured}};
  fmt::print("{}\n", out.dump());
}

void print_table(const BenchSettings& bench, const std::vector<TimedPack>& timed, const Calibration& fit) {
  fmt::print("{:>7}  {:<14} {:>12} {:>8} {:>12} {:>8}\n", "CP size", "samples", "measured ms", "spread", "fitted ms",
             "error");
  for (const TimedPack& t : timed) {
    const CalibrationPack& pack = t.measured.pack;
    const double fitted_us = fit.model.pack_us(pack.lengths, pack.cp_size);
    fmt::print("{:>7}  {:<14} {:>12.3f} {:>6.0f} % {:>12.3f} {:>+6.1f} %\n", pack.cp_size.value(), describe(pack),
               t.measured.us / 1e3, 100 * t.spread, fitted_us / 1e3, 100 * (fitted_us / t.measured.us - 1));
  }
  fmt::print("{} packs: median error {:.1f} %, worst {:.1f} %, {} outlier(s)\n", fit.packs, 100 * fit.median_error,
             100 * fit.worst_error, fit.outliers);
  if (!fit.unmeasured.empty()) fmt::print("not measured, only scaled along: {}\n", fmt::join(fit.unmeasured, ", "));
  fmt::print("written to {0}; plans go by it with --cost-model {0}\n", bench.calibrate);
}

}  // namespace

std::vector<CalibrationPack> packs_to_time(const Topology& topology) {
  const int largest = topology.widest_cp();
  const int64_t longest = topology.max_context > 0 ? topology.max_context : topology.budget * largest;
  std::vector<CalibrationPack> packs;
  if (topology.budget > 0) packs = calibration_packs(largest, topology.budget, longest);
  if (packs.size() < kFewestPacks) {
    throw UsageError(
        fmt::format("[bench] --calibrate: got --max-tokens-per-gpu {}, which leaves {} pack(s) to time, expected at "
                    "least {}. Hint: the budget of your runs, of some thousand tokens",
                    topology.budget, packs.size(), kFewestPacks));
  }
  return packs;
}

std::vector<TimedPack> time_packs(Session& session, TrainState& state, const std::vector<CalibrationPack>& packs,
                                  const BenchSettings& bench) {
  const int64_t runs = bench.warmup_steps + bench.steps;
  RandomSamples samples(0, state.model.config().vocab_size);
  std::vector<TimedPack> timed;
  for (const CalibrationPack& pack : packs) {
    Dataset data;
    for (size_t i = 0; i < pack.lengths.size(); ++i) {
      data.samples.push_back(samples.make(SampleId(static_cast<int64_t>(i)), pack.lengths[i]));
    }
    std::vector<int64_t> indices(pack.lengths.size());
    std::iota(indices.begin(), indices.end(), 0);
    const StepBatch batch(data, indices, session.settings.loss_aggregation);
    state.flat.zero_gradients();
    PreparedStep prepared{batch, {plan_of(pack, session.topology, runs), 0}, {}};
    prepared.inputs = prepare_inputs(session, batch, prepared.planned.plan);
    // Else a group's first run would wait for the rank that makes its samples last.
    session.collectives().barrier("next pack");
    StreamTimer clock(session.device);
    clock.start();
    run_packs(session, state, prepared, static_cast<int64_t>(timed.size()), clock);
    std::vector<double> us = slowest_rank_us(session, clock.take_spans(), runs);
    us.erase(us.begin(), us.begin() + bench.warmup_steps);
    const auto [fastest, slowest] = std::minmax_element(us.begin(), us.end());
    const double middle = median(us);
    timed.push_back({{pack, middle}, (*slowest - *fastest) / middle});
  }
  return timed;
}

void run_calibration(Session& session, TrainState& state, const BenchSettings& bench, bool json) {
  const std::vector<TimedPack> timed = time_packs(session, state, packs_to_time(session.topology), bench);
  if (!session.is_main()) return;
  std::vector<MeasuredPack> measured;
  for (const TimedPack& t : timed) measured.push_back(t.measured);
  const Calibration fit = calibrate(measured, with_short_chunks(session.cost, measured));
  const RunSettings& s = session.settings;
  const std::string machine =
      fmt::format("{} rank(s) of {} ({}, {} layers, {}, recompute {}, at most {} tokens a rank)",
                  session.env.world_size, s.device, to_string(session.topology.cp_comm_type),
                  state.model.config().num_hidden_layers, s.dtype, s.recompute, session.topology.budget);
  save_calibration(fit, machine, bench.calibrate);
  json ? print_json(session, bench, timed, fit) : print_table(bench, timed, fit);
}

}  // namespace ringfold
