#include "ringfold/train/logprob_run.h"

#include <fmt/format.h>

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
    throw RunError(fmt::format("[logprob] cannot write {}. Hint: does the folder exist, is the disk full?", path));
  }
}

}  // namespace

int run_log_probs(const RunSettings& settings) {
  LoadedFiles files;
  std::unique_ptr<DenseModel> model;
  const std::unique_ptr<Session> started = start_session(settings, [&](const Topology& topology) {
    if (settings.output_file.empty()) throw UsageError("[settings] --output is missing. Hint: --output FILE.jsonl");
    require_writable(settings.output_file, "--output");
    files = load_files(settings, topology);
    model = make_model(settings, files.config);
  });
  Session& session = *started;
  require_same_run(session, run_facts(session, files, *model));
  print_startup(session, files);
  const std::vector<SampleScores> scores = score_dataset(session, *model, files.data);
  if (session.is_main()) {
    write_records(settings.output_file, files.data, scores);
    log::info(fmt::format("ringfold: {} records in {}", scores.size(), settings.output_file));
  }
  return 0;
}

}  // namespace ringfold
