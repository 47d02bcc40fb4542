// One JSON line -> one Sample: the rules of docs/reference/data.md, apart from files and line numbers.
#pragma once

#include <stdexcept>
#include <string>

#include "ringfold/data/sample.h"

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

// Fills everything but id and line. Throws BadSample.
Sample parse_sample(const std::string& line, int64_t vocab_size, int64_t max_tokens);

}  // namespace ringfold
