#include "ringfold/data/jsonl.h"

#include <fmt/format.h>

#include "ringfold/base/error.h"
#include "ringfold/data/line_reader.h"
#include "ringfold/data/sample_json.h"

namespace ringfold {
namespace {

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string::npos;
}

std::string at_line(const std::string& file, int64_t line, SampleId id, const std::string& reason) {
  return fmt::format("{}:{} (sample {}): {}", file, line, id.value(), reason);
}

}  // namespace

Dataset load_jsonl(const std::string& file, const DataOptions& options) {
  Dataset dataset;
  dataset.file = file;
  LineReader reader(file, options.max_line_bytes);
  std::string line;
  while (reader.next(line)) {
    if (is_blank(line)) continue;
    const SampleId id(dataset.lines++);
    try {
      if (reader.line_too_long()) {
        throw BadSample("line too long", fmt::format("line too long: got more than {} bytes, expected at most that",
                                                     options.max_line_bytes));
      }
      Sample sample = parse_sample(line, options.vocab_size, options.max_tokens);
      sample.id = id;
      sample.line = reader.line_number();
      dataset.samples.push_back(std::move(sample));
    } catch (const BadSample& bad) {
      const std::string reason = at_line(file, reader.line_number(), id, bad.what());
      if (!options.skip_bad_samples) throw DataError("[data] " + reason);
      dataset.skip_reasons.push_back(reason);
      ++dataset.skip_counts[bad.kind()];
    }
  }
  if (dataset.lines == 0) throw DataError(fmt::format("[data] {}: no sample in the file, expected one a line", file));
  if (dataset.samples.empty()) {
    throw DataError(fmt::format("[data] {}: no sample left: {}", file, skip_summary(dataset)));
  }
  return dataset;
}

std::string skip_summary(const Dataset& dataset) {
  if (dataset.skip_reasons.empty()) return "";
  std::string kinds;
  for (const auto& [kind, count] : dataset.skip_counts) {
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, kind);
  }
  return fmt::format("{} skipped of {} samples ({}). First: {}", dataset.skip_reasons.size(), dataset.lines, kinds,
                     dataset.skip_reasons.front());
}

}  // namespace ringfold
