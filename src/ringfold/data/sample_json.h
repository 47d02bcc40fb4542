// One JSON line -> one Sample: the rules of docs/reference/data.md, apart from files and line numbers.
#pragma once

#include <stdexcept>
#include <string>

#include "ringfold/data/jsonl.h"
#include "ringfold/data/sample.h"
#include "ringfold/data/tokenizer.h"

namespace ringfold {

// Why a line is no sample; the reader adds file, line and sample id.
class BadSample : public std::runtime_error {
 public:
  // `kind` is the fault in a few words, the same for all samples with this fault.
  BadSample(std::string kind, const std::string& message) : std::runtime_error(message), kind_(std::move(kind)) {}
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
};

// Throws BadSample "kind: detail".
[[noreturn]] void bad_sample(const std::string& kind, const std::string& detail);

// Fills everything but id and line. `workspace`: of options.tokenizer, null without one. Throws BadSample.
Sample parse_sample(const std::string& line, const DataOptions& options, Tokenizer::Workspace* workspace);

}  // namespace ringfold
