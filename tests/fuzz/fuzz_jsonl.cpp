// Data files, plain and gzip, with and without --skip-bad-samples.
#include "fuzz/fuzz_target.h"
#include "ringfold/data/jsonl.h"

namespace {

using namespace ringfold;

void check(const Sample& sample, const DataOptions& options) {
  fuzz::require(sample.length() >= 1 && sample.length() <= options.max_tokens, "length");
  for (const int64_t id : sample.tokens) fuzz::require(id >= 0 && id < options.vocab_size, "token id");
  fuzz::require(sample.loss_mask.size() == sample.tokens.size() && sample.loss_mask.front() == 0, "loss mask");
  fuzz::require(sample.response_length >= 0 && sample.response_length < sample.length(), "response length");
  for (const auto* values : {&sample.old_log_probs, &sample.rollout_log_probs, &sample.ref_log_probs}) {
    fuzz::require(values->empty() || static_cast<int64_t>(values->size()) == sample.response_length, "log-probs");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(data, size);
  DataOptions options;
  options.vocab_size = 100;
  options.max_tokens = 40;
  options.max_line_bytes = 1 << 16;
  for (const bool skip : {true, false}) {
    options.skip_bad_samples = skip;
    fuzz::expect_value_or_message([&] {
      const Dataset dataset = load_jsonl(file.path(), options);
      for (const Sample& sample : dataset.samples) check(sample, options);
      fuzz::require(dataset.samples.size() + dataset.skip_reasons.size() == static_cast<size_t>(dataset.lines),
                    "count");
      fuzz::require(skip || dataset.skip_reasons.empty(), "skipped without leave");
      skip_summary(dataset);
      dataset.digest();
    });
  }
  return 0;
}
