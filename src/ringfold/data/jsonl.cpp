#include "ringfold/data/jsonl.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>
#include <variant>

#include "ringfold/base/error.h"
#include "ringfold/data/line_reader.h"
#include "ringfold/data/sample_json.h"

namespace ringfold {
namespace {

// Lines are held and read together up to one of these.
constexpr size_t kBatchBytes = size_t{16} << 20, kBatchLines = size_t{1} << 14;
// Every rank of a host reads the file: no use in more.
constexpr int kMostThreads = 16;
// Below this a thread costs more than it saves.
constexpr size_t kBytesWorthAThread = size_t{64} << 10;

struct Line {
  std::string text;
  int64_t number;
  bool too_long;
};
using Outcome = std::variant<std::exception_ptr, Sample>;

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string::npos;
}

// Parses lines on several threads. A line's outcome depends on nothing but the line.
class LineParser {
 public:
  explicit LineParser(const DataOptions& options) : options_(options) {
    const int cores = std::min(static_cast<int>(std::thread::hardware_concurrency()), kMostThreads);
    workspaces_.resize(static_cast<size_t>(options.threads > 0 ? options.threads : std::max(cores, 1)));
    if (!options.tokenizer) return;
    for (auto& workspace : workspaces_) workspace.emplace(*options.tokenizer);
  }

  std::vector<Outcome> parse(const std::vector<Line>& lines, size_t bytes) {
    std::vector<Outcome> outcomes(lines.size());
    std::atomic<size_t> next = 0;
    const auto work = [&](std::optional<Tokenizer::Workspace>& workspace) {
      for (size_t i; (i = next++) < lines.size();)
        outcomes[i] = parse_line(lines[i], workspace ? &*workspace : nullptr);
    };
    {
      std::vector<std::jthread> helpers;
      const size_t threads = std::min(workspaces_.size(), 1 + bytes / kBytesWorthAThread);
      for (size_t i = 1; i < threads; ++i) helpers.emplace_back([&work, this, i] { work(workspaces_[i]); });
      work(workspaces_[0]);
    }
    return outcomes;
  }

 private:
  Outcome parse_line(const Line& line, Tokenizer::Workspace* workspace) const noexcept {
    try {
      if (line.too_long) {
        bad_sample("line too long",
                   fmt::format("got more than {} bytes, expected at most that", options_.max_line_bytes));
      }
      Sample sample = parse_sample(line.text, options_, workspace);
      sample.line = line.number;
      return sample;
    } catch (...) {
      return std::current_exception();
    }
  }

  const DataOptions& options_;
  std::vector<std::optional<Tokenizer::Workspace>> workspaces_;  // a thread each; empty without a tokenizer
};

// Adds the samples in file order; throws for the first bad line, or counts bad lines.
void add_samples(const std::vector<Line>& lines, std::vector<Outcome> outcomes, bool skip_bad, Dataset& dataset) {
  for (size_t i = 0; i < lines.size(); ++i) {
    const SampleId id(dataset.lines++);
    if (auto* sample = std::get_if<Sample>(&outcomes[i])) {
      sample->id = id;
      dataset.samples.push_back(std::move(*sample));
      continue;
    }
    try {
      std::rethrow_exception(std::get<std::exception_ptr>(outcomes[i]));
    } catch (const BadSample& bad) {
      const std::string reason =
          fmt::format("{}:{} (sample {}): {}", dataset.file, lines[i].number, id.value(), bad.what());
      if (!skip_bad) throw DataError("[data] " + reason);
      dataset.skip_reasons.push_back(reason);
      ++dataset.skip_counts[bad.kind()];
    }
  }
}

}  // namespace

Dataset load_jsonl(const std::string& file, const DataOptions& options) {
  Dataset dataset;
  dataset.file = file;
  LineReader reader(file, options.max_line_bytes);
  LineParser parser(options);
  std::exception_ptr read_error;
  for (bool more = true; more;) {
    std::vector<Line> lines;
    size_t bytes = 0;
    std::string text;
    try {
      while (bytes < kBatchBytes && lines.size() < kBatchLines && (more = reader.next(text))) {
        if (is_blank(text)) continue;
        bytes += text.size();
        lines.push_back({std::move(text), reader.line_number(), reader.line_too_long()});
        text.clear();
      }
    } catch (const DataError&) {
      // A bad line before the place where reading failed is the error to tell of.
      read_error = std::current_exception();
      more = false;
    }
    add_samples(lines, parser.parse(lines, bytes), options.skip_bad_samples, dataset);
  }
  if (read_error) std::rethrow_exception(read_error);
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
