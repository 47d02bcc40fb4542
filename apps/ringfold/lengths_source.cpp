#include "lengths_source.h"

#include <fmt/format.h>

#include "ringfold/data/jsonl.h"
#include "ringfold/data/lengths.h"
#include "ringfold/data/order.h"
#include "ringfold/data/tokenizer.h"

namespace ringfold {
namespace {

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

}  // namespace

Lengths load_lengths_of(const RunSettings& settings, const CommandOptions& options, int64_t limit) {
  const int sources = !options.lengths.empty() + !options.lengths_file.empty() + !settings.data_file.empty();
  if (sources != 1) {
    throw UsageError(
        fmt::format("[flags] --lengths, --lengths-file, --data: got {} of them, expected exactly one", sources));
  }
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
  if (env.world_size > 1 || env.under_ringfold_launch) return env.world_size;
  throw UsageError("[flags] --world-size: not given, expected the number of ranks to plan for. Hint: --world-size 8");
}

std::vector<SampleLength> batch_of(const std::vector<SampleLength>& samples, const RunSettings& settings,
                                   int64_t step) {
  const GlobalBatch batch = global_batch(static_cast<int64_t>(samples.size()), settings.global_batch_size, step,
                                         settings.seed, settings.shuffle);
  std::vector<SampleLength> chosen;
  for (const int64_t index : batch.indices) chosen.push_back(samples[static_cast<size_t>(index)]);
  return chosen;
}

}  // namespace ringfold
