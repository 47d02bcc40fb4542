#include "ringfold/train/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ringfold/data/jsonl.h"
#include "ringfold/data/lengths.h"
#include "ringfold/data/order.h"
#include "ringfold/plan/policy_names.h"
#include "ringfold/train/setup.h"
#include "ringfold/train/step.h"

namespace ringfold {
namespace {

struct PolicyResult {
  std::string name;
  std::vector<double> step_ms;
  std::vector<double> exposed_ms;
  std::map<int, double> cp_token_share;
  double loss = 0;
  double padding_waste = 0;
  double median_ms() const {
    std::vector<double> sorted = step_ms;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

// Seeded tokens: what is timed does not depend on them, and every rank makes the same.
Dataset random_samples(const std::string& file, const Topology& topology, int64_t vocab_size, uint64_t seed) {
  Dataset data;
  data.file = file;
  uint64_t state = seed * 2654435761u + 1;
  const int64_t limit = longest_accepted(topology);
  for (const int64_t length : load_lengths(file)) {
    const auto id = static_cast<int64_t>(data.samples.size());
    if (limit > 0 && length > limit) {
      throw DataError(fmt::format("[data] {} (sample {}): {}", file, id, too_long_message(length, limit)));
    }
    Sample sample;
    sample.id = SampleId(id);
    sample.line = id + 1;
    for (int64_t t = 0; t < length; ++t) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      sample.tokens.push_back(static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
    }
    sample.response_length = length - 1;
    sample.loss_mask.assign(static_cast<size_t>(length), 1);
    sample.loss_mask[0] = 0;
    data.samples.push_back(std::move(sample));
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
  result.loss = report.sums.loss;
  result.padding_waste = report.plan.summary.padding_waste;
  const auto tokens = static_cast<double>(report.plan.summary.tokens);
  for (const MicroStep& micro_step : report.plan.micro_steps) {
    for (const PlannedGroup& group : micro_step.groups) {
      for (const int64_t real : group.real_tokens) {
        result.cp_token_share[group.cp_size.value()] += static_cast<double>(real) / tokens;
      }
    }
  }
}

void print_results(const Session& session, const BenchSettings& bench, const std::vector<PolicyResult>& results,
                   double tokens, double flops, bool json) {
  nlohmann::ordered_json out = {{"schema", 1}, {"world_size", session.env.world_size}, {"steps", bench.steps}};
  if (!json) {
    fmt::print("{:<12} {:>10} {:>10} {:>10} {:>7} {:>12} {:>10} {:>9}  {}\n", "policy", "median ms", "min", "max",
               "ratio", "tok/s/rank", "TFLOP/s", "exposed", "token share by CP size");
  }
  for (const PolicyResult& result : results) {
    const double ratio = results.front().median_ms() / result.median_ms();
    const double rate = tokens / result.median_ms() * 1e3 / session.env.world_size;
    const double tflops = flops / result.median_ms() / 1e9 / session.env.world_size;
    const double exposed = *std::max_element(result.exposed_ms.begin(), result.exposed_ms.end());
    const auto [low, high] = std::minmax_element(result.step_ms.begin(), result.step_ms.end());
    std::string shares;
    nlohmann::ordered_json share_json = nlohmann::ordered_json::object();
    for (const auto& [size, share] : result.cp_token_share) {
      const double mean = share / static_cast<double>(result.step_ms.size());
      shares += fmt::format("{}{}: {:.0f} %", shares.empty() ? "" : ", ", size, 100 * mean);
      share_json[std::to_string(size)] = mean;
    }
    nlohmann::ordered_json row = {{"policy", result.name},
                                  {"median_ms", result.median_ms()},
                                  {"min_ms", *low},
                                  {"max_ms", *high},
                                  {"ratio", ratio},
                                  {"tokens_per_s_per_rank", rate},
                                  {"tflops_per_rank", tflops},
                                  {"exposed_comm_ms", exposed},
                                  {"loss", result.loss},
                                  {"padding_waste", result.padding_waste},
                                  {"cp_token_share", share_json}};
    if (bench.peak_tflops > 0) row["mfu"] = tflops / bench.peak_tflops;
    out["policies"].push_back(row);
    if (json) continue;
    fmt::print("{:<12} {:>10.1f} {:>10.1f} {:>10.1f} {:>6.2f}x {:>12.0f} {:>10.4f} {:>6.1f} ms  {}\n", result.name,
               result.median_ms(), *low, *high, ratio, rate, tflops, exposed, shares);
  }
  if (json) fmt::print("{}\n", out.dump());
}

}  // namespace

int run_bench_policies(const RunSettings& settings, const BenchSettings& bench, bool json) {
  LoadedFiles files;
  std::unique_ptr<DenseModel> model;
  const std::unique_ptr<Session> started = start_session(settings, [&](const Topology& topology) {
    const std::vector<std::string>& known = policy_choices();
    for (const std::string& policy : bench.policies) {
      if (std::find(known.begin(), known.end(), policy) != known.end()) continue;
      throw UsageError(
          fmt::format("[bench] --policies: got '{}', expected some of {}", policy, fmt::join(known, ", ")));
    }
    if (settings.objective != Objective::kSft) {
      throw UsageError("[bench] --objective: got grpo, expected sft. Hint: the work of a step is the same for both");
    }
    if (!bench.lengths_file.empty() && !settings.data_file.empty()) {
      throw UsageError(fmt::format("[bench] --lengths-file {} and --data {}: got both, expected one",
                                   bench.lengths_file, settings.data_file));
    }
    if (bench.lengths_file.empty()) {
      files = load_files(settings, topology);
    } else {
      files.config = load_model_config(settings.model_dir.empty() ? settings.model_config : settings.model_dir);
      files.data = random_samples(bench.lengths_file, topology, files.config.vocab_size, settings.seed);
    }
    model = make_model(settings, files.config);
  });
  Session& session = *started;
  require_same_run(session, run_facts(session, files, *model));
  print_startup(session, files);
  FlatParameters flat(model->parameters());
  TrainState state{*model, flat};

  std::vector<PolicyResult> results;
  for (const std::string& policy : bench.policies) results.push_back({policy, {}, {}, {}, 0, 0});
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
      const StepReport report = train_step(session, state, batch, step + 1, 0);
      if (!measured) continue;
      record(result, report);
      if (p > 0) continue;
      tokens += static_cast<double>(report.plan.summary.tokens) / static_cast<double>(bench.steps);
      flops += files.config.train_flops(report.plan.summary.tokens, report.plan.summary.sum_squared_tokens) /
               static_cast<double>(bench.steps);
    }
  }
  if (session.is_main()) print_results(session, bench, results, tokens, flops, json);
  return 0;
}

}  // namespace ringfold
