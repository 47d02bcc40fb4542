// Tokenizer speed: MB of UTF-8 a second on one core, and through load_jsonl on 1, 2, 4 threads.
// Usage: bench_tokenizer TOKENIZER_DIR FILE.jsonl [benchmark flags]; FILE: one {"text": ...} a line, such as
// tests/data/hf_ids.py writes.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ringfold/data/jsonl.h"
#include "ringfold/data/tokenizer.h"

namespace ringfold {
namespace {

struct Corpus {
  std::vector<std::string> texts;
  size_t bytes = 0;
};

Corpus read_corpus(const std::string& file) {
  Corpus corpus;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    corpus.texts.push_back(nlohmann::json::parse(line).at("text").get<std::string>());
    corpus.bytes += corpus.texts.back().size();
  }
  return corpus;
}

// Samples that load_jsonl takes: text that is not empty, and nothing else on the line.
std::string write_samples(const Corpus& corpus) {
  const std::string file = std::filesystem::temp_directory_path() / fmt::format("bench_tokenizer_{}.jsonl", getpid());
  std::ofstream out(file);
  for (const std::string& text : corpus.texts) {
    if (!text.empty()) out << nlohmann::json{{"text", text}}.dump() << "\n";
  }
  return file;
}

void count_bytes(benchmark::State& state, size_t bytes) {
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const Corpus& corpus) {
  Tokenizer::Workspace workspace(tokenizer);
  std::vector<int64_t> ids;
  for ([[maybe_unused]] auto _ : state) {
    size_t tokens = 0;
    for (const std::string& text : corpus.texts) {
      ids.clear();
      tokenizer.encode(text, workspace, ids);
      tokens += ids.size();
    }
    state.counters["tokens/s"] =
        benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsIterationInvariantRate);
  }
  count_bytes(state, corpus.bytes);
}

void load(benchmark::State& state, const std::shared_ptr<const Tokenizer>& tokenizer, const std::string& file,
          size_t bytes) {
  DataOptions options;
  options.tokenizer = tokenizer;
  options.threads = static_cast<int>(state.range(0));
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(load_jsonl(file, options));
  count_bytes(state, bytes);
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 3) {
    fmt::print(stderr, "usage: bench_tokenizer TOKENIZER_DIR FILE.jsonl [benchmark flags]\n");
    return 2;
  }
  const auto tokenizer = std::make_shared<const Tokenizer>(Tokenizer::from_dir(argv[1]));
  const Corpus corpus = read_corpus(argv[2]);
  const std::string samples = write_samples(corpus);
  benchmark::RegisterBenchmark("encode", [&](benchmark::State& s) {
    encode(s, *tokenizer, corpus);
  })->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("load_jsonl", [&](benchmark::State& s) { load(s, tokenizer, samples, corpus.bytes); })
      ->Arg(1)
      ->Arg(2)
      ->Arg(4)
      ->ArgName("threads")
      ->MeasureProcessCPUTime()
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("from_dir", [&](benchmark::State& s) {
    for ([[maybe_unused]] auto _ : s) benchmark::DoNotOptimize(Tokenizer::from_dir(argv[1]));
  })->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
  std::filesystem::remove(samples);
  return 0;
}

}  // namespace
}  // namespace ringfold

int main(int argc, char** argv) {
  return ringfold::run(argc, argv);
}
