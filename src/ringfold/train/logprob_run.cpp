#include "ringfold/train/logprob_run.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ringfold/base/log.h"
#include "ringfold/train/log_probs.h"
#include "ringfold/train/setup.h"

namespace ringfold {
namespace {

void write_records(const std::string& path, const Dataset& data, const std::vector<SampleScores>& scores) {
  std::ofstream file(path);
  for (size_t i = 0; i < scores.size(); ++i) {
    const nlohmann::ordered_json record = {
        {"index", data.samples[i].id.value()}, {"log_probs", scores[i].log_probs}, {"entropy", scores[i].entropy}};
    file << record.dump() << '\n';
  }
  if (!file.flush()) {
    throw RunError(
        fmt::format("[logprob] {}: cannot write the records: {}. Hint: is the disk full?", path, std::strerror(errno)));
  }
}

}  // namespace

int run_log_probs(const RunSettings& settings) {
  const StartedRun started = start_run(settings, [&](const Topology& topology) {
    if (settings.output_file.empty()) throw UsageError("[settings] --output is missing. Hint: --output FILE.jsonl");
    require_writable(settings.output_file, "--output");
    return load_files(settings, topology, /*scored=*/true);
  });
  return run_with_others(*started.session, [&](Session& session) {
    const std::vector<SampleScores> scores = score_dataset(session, *started.model, started.files.data);
    if (session.is_main()) {
      session.enter("saving");
      write_records(settings.output_file, started.files.data, scores);
      log::info(fmt::format("ringfold: {} records in {}", scores.size(), settings.output_file));
    }
    return 0;
  });
}

}  // namespace ringfold
