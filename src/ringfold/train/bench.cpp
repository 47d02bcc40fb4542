#include "ringfold/train/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "ringfold/data/jsonl.h"
#include "ringfold/data/lengths.h"
#include "ringfold/data/order.h"
#include "ringfold/device/device.h"
#include "ringfold/plan/length_laws.h"
#include "ringfold/plan/policy_names.h"
#include "ringfold/report/timeline.h"
#include "ringfold/train/calibration.h"
#include "ringfold/train/kernel_profile.h"
#include "ringfold/train/random_samples.h"
#include "ringfold/train/setup.h"
#include "ringfold/train/step.h"

namespace ringfold {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct PolicyResult {
  std::string name;
  std::vector<double> step_ms;
  std::vector<double> exposed_ms;
  std::vector<double> plan_ms;
  std::map<int, double> cp_token_share;
  std::vector<double> limit_ms;      // T*, by the plan's cost model: no plan can be faster
  std::vector<double> predicted_ms;  // by the plan's cost model; what the reduction and the update take is not in it
  double loss = 0;
  double padding_waste = 0;
  int64_t peak_memory_bytes = 0;
  StepTimeline timeline;  // of the last step
  double median_ms() const { return median(step_ms); }
};

std::vector<int64_t> lengths_of(const BenchSettings& bench, uint64_t seed) {
  if (bench.law.empty()) return load_lengths(bench.lengths_file);
  const auto& laws = length_laws();
  const auto law = std::find_if(laws.begin(), laws.end(), [&](const LengthLawInfo& l) { return l.name == bench.law; });
  RINGFOLD_ASSERT(law != laws.end(), "a law that flags do not know");
  return draw_lengths(law->law, seed, bench.law_samples);
}

Dataset random_samples(const BenchSettings& bench, const RunSettings& settings, const Topology& topology,
                       int64_t vocab_size) {
  Dataset data;
  data.file = bench.law.empty() ? bench.lengths_file : "law " + bench.law;
  RandomSamples samples(settings.seed, vocab_size);
  const int64_t limit = longest_accepted(topology, /*scored=*/false).tokens;
  for (const int64_t length : lengths_of(bench, settings.seed)) {
    const auto id = static_cast<int64_t>(data.samples.size());
    if (limit > 0 && length > limit) {
      if (settings.skip_bad_samples) continue;
      throw DataError(fmt::format("[data] {} (sample {}): {}", data.file, id, too_long_message(length, limit)));
    }
    data.samples.push_back(samples.make(SampleId(id), length));
  }
  data.lines = static_cast<int64_t>(data.samples.size());
  return data;
}

// `mixed` runs free, as it does by default; the others are lockstep.
void use_policy(Session& session, const std::string& name) {
  PlanRequest request;
  request.topology = session.topology;
  session.topology = with_policy(request, name, name == "mixed" ? Execution::kFree : Execution::kLockstep).topology;
}

void record(PolicyResult& result, const StepReport& report) {
  result.step_ms.push_back(report.step_ms);
  result.exposed_ms.push_back(report.exposed_ms);
  result.plan_ms.push_back(report.plan_ms);
  result.predicted_ms.push_back(report.plan.summary.makespan_us / 1e3);
  result.limit_ms.push_back(report.plan.summary.lower_bound_us / 1e3);
  result.loss = report.sums.loss;
  result.padding_waste = report.plan.summary.padding_waste;
  for (const auto& [size, share] : token_share_by_size(report.plan)) result.cp_token_share[size] += share;
  result.peak_memory_bytes = std::max(result.peak_memory_bytes, report.peak_memory_bytes);
}

// What one step does, on average, and the memory that lasts from step to step.
struct Work {
  double tokens = 0, flops = 0;
  int64_t state_bytes = 0;
};

void print_results(const Session& session, const BenchSettings& bench, const std::vector<PolicyResult>& results,
                   const Work& work, bool json) {
  nlohmann::ordered_json out = {{"schema", 1}, {"world_size", session.env.world_size}, {"steps", bench.steps}};
  if (!session.device.is_cpu()) out["state_bytes"] = work.state_bytes;
  if (!json) {
    fmt::print("{:<12} {:>10} {:>10} {:>10} {:>10} {:>6} {:>7} {:>12} {:>10} {:>9}  {}\n", "policy", "median ms", "min",
               "max", "predicted", "of T*", "ratio", "tok/s/rank", "TFLOP/s", "exposed", "token share by CP size");
  }
  // A run's own cost model is that of its shape on an H200: what it predicts for a CPU would mislead.
  const bool predicts = !session.device.is_cpu() || !session.settings.cost_model.empty();
  for (const PolicyResult& result : results) {
    const double ratio = results.front().median_ms() / result.median_ms();
    const double rate = work.tokens / result.median_ms() * 1e3 / session.env.world_size;
    const double tflops = work.flops / result.median_ms() / 1e9 / session.env.world_size;
    const double exposed = *std::max_element(result.exposed_ms.begin(), result.exposed_ms.end());
    const auto [low, high] = std::minmax_element(result.step_ms.begin(), result.step_ms.end());
    std::string shares;
    nlohmann::ordered_json share_json = nlohmann::ordered_json::object();
    for (const auto& [size, share] : result.cp_token_share) {
      const double mean = share / static_cast<double>(result.step_ms.size());
      shares += fmt::format("{}{}: {:.0f} %", shares.empty() ? "" : ", ", size, 100 * mean);
      share_json[std::to_string(size)] = mean;
    }
    const double share_of_limit = median(result.limit_ms) / result.median_ms();
    nlohmann::ordered_json row = {{"policy", result.name},
                                  {"median_ms", result.median_ms()},
                                  {"min_ms", *low},
                                  {"max_ms", *high},
                                  {"predicted_ms", median(result.predicted_ms)},
                                  {"limit_ms", median(result.limit_ms)},
                                  {"share_of_limit", share_of_limit},
                                  {"plan_ms", median(result.plan_ms)},
                                  {"ratio", ratio},
                                  {"tokens_per_s_per_rank", rate},
                                  {"tflops_per_rank", tflops},
                                  {"exposed_comm_ms", exposed},
                                  {"loss", result.loss},
                                  {"padding_waste", result.padding_waste},
                                  {"cp_token_share", share_json}};
    if (bench.peak_tflops > 0) row["mfu"] = tflops / bench.peak_tflops;
    if (!session.device.is_cpu()) row["peak_memory_bytes"] = result.peak_memory_bytes;
    out["policies"].push_back(row);
    if (json) continue;
    fmt::print("{:<12} {:>10.1f} {:>10.1f} {:>10.1f} {:>10} {:>6} {:>6.2f}x {:>12.0f} {:>10.4f} {:>6.1f} ms  {}\n",
               result.name, result.median_ms(), *low, *high,
               predicts ? fmt::format("{:.1f}", median(result.predicted_ms)) : "-",
               predicts ? fmt::format("{:.0f} %", 100 * share_of_limit) : "-", ratio, rate, tflops, exposed, shares);
    if (bench.peak_tflops > 0)
      fmt::print("{:<12} {:.1f} % of {:g} TFLOP/s\n", "", 100 * tflops / bench.peak_tflops, bench.peak_tflops);
    if (!session.device.is_cpu()) {
      fmt::print("{:<12} peak memory {:.2f} GB, of it weights, gradients and optimizer {:.2f} GB\n", "",
                 static_cast<double>(result.peak_memory_bytes) / 1e9, static_cast<double>(work.state_bytes) / 1e9);
    }
  }
  if (json) fmt::print("{}\n", out.dump());
}

void require_written(std::ofstream& file, const std::string& path) {
  if (!file.flush()) throw RunError(fmt::format("[bench] cannot write {}. Hint: does its folder exist?", path));
}

void write_timelines(const std::string& path, const std::vector<PolicyResult>& results) {
  std::ofstream file(path);
  for (const PolicyResult& result : results) file << to_json_line(result.timeline) << '\n';
  require_written(file, path);
}

// Every rank runs the step; rank 0 records its own kernels.
void profile_policies(Session& session, TrainState& state, const StepBatch& batch, const BenchSettings& bench) {
  std::ofstream file;
  if (session.is_main()) file.open(bench.profile);
  int64_t step = bench.warmup_steps + bench.steps;
  for (const std::string& policy : bench.policies) {
    use_policy(session, policy);
    if (session.is_main()) start_kernel_profile();
    train_step(session, state, batch, ++step, 0);
    if (session.is_main()) file << policy << ": " << to_text(stop_kernel_profile(), 40) << '\n';
  }
  if (session.is_main()) require_written(file, bench.profile);
}

// --calibrate makes its own samples: a model is all it needs.
LoadedFiles files_to_calibrate(const RunSettings& settings, const BenchSettings& bench, const Topology& topology) {
  for (const auto& [flag, given] : {std::pair{"--lengths-file", !bench.lengths_file.empty()},
                                    {"--law", !bench.law.empty()},
                                    {"--data", !settings.data_file.empty()},
                                    {"--update", bench.update},
                                    {"--timeline", !bench.timeline.empty()},
                                    {"--profile", !bench.profile.empty()}}) {
    if (!given) continue;
    throw UsageError(fmt::format(
        "[bench] --calibrate and {}: got both, expected one. Hint: calibrate first, then bench with --cost-model {}",
        flag, bench.calibrate));
  }
  require_writable(bench.calibrate, "--calibrate");
  packs_to_time(topology);
  LoadedFiles files;
  files.config = config_of(settings);
  return files;
}

// All ranks; returns the exit code.
int time_policies(Session& session, const RunSettings& settings, const BenchSettings& bench, const LoadedFiles& files,
                  DenseModel* model, bool json) {
  FlatParameters flat(model->parameters(), shard_of(session.collectives()));
  std::optional<AdamW> optimizer;
  if (bench.update) optimizer.emplace(flat, AdamWOptions{});
  TrainState state{*model, flat, optimizer ? &*optimizer : nullptr};
  if (!bench.calibrate.empty()) {
    run_calibration(session, state, bench, json);
    return 0;
  }
  const int64_t state_bytes = device_memory(session.device).allocated_bytes;

  std::vector<PolicyResult> results;
  for (const std::string& policy : bench.policies) {
    results.emplace_back();
    results.back().name = policy;
  }
  const auto count = static_cast<int64_t>(files.data.samples.size());
  double tokens = 0, flops = 0;
  for (int64_t step = 0; step < bench.warmup_steps + bench.steps; ++step) {
    const bool measured = step >= bench.warmup_steps;
    const int64_t number = measured ? step - bench.warmup_steps + 1 : 1;
    const StepBatch batch(
        files.data, global_batch(count, settings.global_batch_size, number, settings.seed, settings.shuffle).indices,
        settings.loss_aggregation);
    for (size_t p = 0; p < results.size(); ++p) {
      // Every other step in reverse order, so that no policy always runs first.
      PolicyResult& result = results[step % 2 == 0 ? p : results.size() - 1 - p];
      use_policy(session, result.name);
      // Not timed: training does it while the step before runs.
      PreparedStep prepared = prepare_step(session, batch, step + 1);
      const StepReport report = train_step(session, state, prepared, step + 1, bench.update ? settings.lr : 0);
      if (!measured) continue;
      record(result, report);
      if (!bench.timeline.empty()) {
        result.timeline = make_timeline(number, 1e3 * report.step_ms, report.plan, report.pack_us);
      }
      if (p > 0) continue;
      tokens += static_cast<double>(report.plan.summary.tokens) / static_cast<double>(bench.steps);
      flops += files.config.train_flops(report.plan.summary.tokens, report.plan.summary.sum_squared_tokens) /
               static_cast<double>(bench.steps);
    }
  }
  if (!bench.profile.empty() && !session.device.is_cpu()) {
    const StepBatch batch(files.data,
                          global_batch(count, settings.global_batch_size, 1, settings.seed, settings.shuffle).indices,
                          settings.loss_aggregation);
    profile_policies(session, state, batch, bench);
  }
  if (session.is_main() && !bench.timeline.empty()) write_timelines(bench.timeline, results);
  if (session.is_main()) print_results(session, bench, results, {tokens, flops, state_bytes}, json);
  return 0;
}

}  // namespace

int run_bench_policies(const RunSettings& settings, const BenchSettings& bench, bool json) {
  const StartedRun started = start_run(settings, [&](const Topology& topology) {
    const std::vector<std::string>& known = policy_choices();
    for (const std::string& policy : bench.policies) {
      if (std::find(known.begin(), known.end(), policy) != known.end()) continue;
      throw UsageError(
          fmt::format("[bench] --policies: got '{}', expected some of {}", policy, fmt::join(known, ", ")));
    }
    if (settings.objective != Objective::kSft) {
      throw UsageError(
          fmt::format("[bench] --objective: got {}, expected sft. Hint: the work of a step is the same for all",
                      name_of(settings.objective)));
    }
    if (!bench.timeline.empty()) require_writable(bench.timeline, "--timeline");
    if (!bench.profile.empty()) require_writable(bench.profile, "--profile");
    if (!bench.calibrate.empty()) return files_to_calibrate(settings, bench, topology);
    const bool drawn = !bench.lengths_file.empty() || !bench.law.empty();
    if (drawn + !settings.data_file.empty() + (!bench.lengths_file.empty() && !bench.law.empty()) > 1) {
      throw UsageError(fmt::format("[bench] --lengths-file {}, --law {}, --data {}: got several, expected one",
                                   bench.lengths_file, bench.law, settings.data_file));
    }
    if (!drawn) return load_files(settings, topology);
    LoadedFiles made;
    made.config = config_of(settings);
    made.data = random_samples(bench, settings, topology, made.config.vocab_size);
    return made;
  });
  return run_with_others(*started.session, [&](Session& session) {
    return time_policies(session, settings, bench, started.files, started.model.get(), json);
  });
}

}  // namespace ringfold
