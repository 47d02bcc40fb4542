// `ringfold plan`: a dry run over lengths. Needs no model, no torch and no other rank.
#include "ringfold/plan/plan.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstring>

#include "commands.h"
#include "output.h"
#include "ringfold/base/log.h"
#include "ringfold/data/jsonl.h"
#include "ringfold/data/lengths.h"
#include "ringfold/data/order.h"
#include "ringfold/mesh/launch_env.h"
#include "ringfold/plan/planner.h"

namespace ringfold {
namespace {

struct Lengths {
  std::vector<SampleLength> samples;
  std::string skipped;  // what was left out and why; empty: nothing
};

Lengths checked_lengths(const std::vector<int64_t>& tokens, const std::string& source, int64_t limit, bool skip) {
  Lengths lengths;
  std::string first;
  size_t bad = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const SampleId id(static_cast<int64_t>(i));
    if (limit == 0 || tokens[i] <= limit) {
      lengths.samples.push_back({id, tokens[i]});
      continue;
    }
    const std::string reason = fmt::format("{} (sample {}): {}", source, i, too_long_message(tokens[i], limit));
    if (!skip) throw DataError("[data] " + reason);
    if (bad++ == 0) first = reason;
  }
  if (bad > 0) lengths.skipped = fmt::format("{} skipped of {} samples. First: {}", bad, tokens.size(), first);
  if (lengths.samples.empty()) throw DataError(fmt::format("[data] no sample left: {}", lengths.skipped));
  return lengths;
}

Lengths load_lengths_of(const RunSettings& settings, const CommandOptions& options, const Topology& topology) {
  const int sources = !options.lengths.empty() + !options.lengths_file.empty() + !settings.data_file.empty();
  if (sources != 1) {
    throw UsageError(
        fmt::format("[flags] --lengths, --lengths-file, --data: got {} of them, expected exactly one", sources));
  }
  const int64_t limit = topology.max_context;
  if (!options.lengths.empty()) {
    return checked_lengths(parse_lengths(options.lengths, "[flags] --lengths"), "--lengths", limit,
                           settings.skip_bad_samples);
  }
  if (!options.lengths_file.empty()) {
    return checked_lengths(load_lengths(options.lengths_file), options.lengths_file, limit, settings.skip_bad_samples);
  }
  DataOptions data_options;
  data_options.max_tokens = limit;
  data_options.skip_bad_samples = settings.skip_bad_samples;
  if (!settings.tokenizer_dir.empty()) {
    data_options.tokenizer = std::make_shared<const Tokenizer>(Tokenizer::from_dir(settings.tokenizer_dir));
  }
  const Dataset dataset = load_jsonl(settings.data_file, data_options);
  Lengths lengths;
  for (const Sample& sample : dataset.samples) lengths.samples.push_back({sample.id, sample.length()});
  lengths.skipped = skip_summary(dataset);
  return lengths;
}

int world_size_of(const RunSettings& settings, const CommandOptions& options, const LaunchEnv& env) {
  if (options.world_size_given) return settings.parallel.world_size;
  if (env.world_size > 1) return env.world_size;
  throw UsageError("[flags] --world-size: not given, expected the number of ranks to plan for. Hint: --world-size 8");
}

}  // namespace

int run_plan(const RunSettings& settings, const CommandOptions& options) {
  const LaunchEnv env = read_launch_env();
  // The plan is the same on every rank, and so is every refusal: one of them speaks.
  if (env.rank.value() > 0) return 0;
  ParallelSettings parallel = settings.parallel;
  parallel.world_size = world_size_of(settings, options, env);
  const Topology topology = derive_topology(parallel);
  const Lengths lengths = load_lengths_of(settings, options, topology);
  if (!lengths.skipped.empty()) log::warning(lengths.skipped);
  for (const std::string& warning : topology.warnings) log::warning(warning);

  PlanRequest request;
  request.topology = topology;
  request.budget = topology.budget;
  const GlobalBatch batch = global_batch(static_cast<int64_t>(lengths.samples.size()), settings.global_batch_size,
                                         options.step, settings.seed, settings.shuffle);
  for (const int64_t index : batch.indices) request.samples.push_back(lengths.samples[static_cast<size_t>(index)]);

  const auto begin = std::chrono::steady_clock::now();
  const Result<Plan> plan = make_plan(request);
  const std::chrono::duration<double, std::milli> plan_ms = std::chrono::steady_clock::now() - begin;
  if (!plan.ok()) throw Error(ExitCode::kNoPlan, plan.reason());

  if (options.json) {
    write_stdout(plan_to_json(plan.value(), options.timing ? plan_ms.count() : -1) + "\n");
    return 0;
  }
  std::string text;
  for (const std::string& note : topology.notes) text += note + "\n";
  text += plan_to_text(plan.value());
  if (options.timing) text += fmt::format("planning took     {:.3f} ms\n", plan_ms.count());
  write_stdout(text);
  return 0;
}

}  // namespace ringfold
