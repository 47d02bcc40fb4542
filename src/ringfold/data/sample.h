// One training sample, and a set of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ringfold/base/ids.h"

namespace ringfold {

struct Sample {
  SampleId id{0};    // 0-based over the file's non-blank lines; kept when others are skipped
  int64_t line = 0;  // 1-based line of the file
  std::vector<int64_t> tokens;
  int64_t response_length = 0;  // R: the last R tokens are the response; tokens.size() - 1 when the file does not say
  std::vector<uint8_t> loss_mask;  // per token of the whole sample (tokens.size()); entry 0 is always 0

  // RL fields; per response token (R entries), empty when absent.
  std::optional<double> reward;
  std::optional<bool> truncated;     // the response ended at the length limit: for metrics only
  std::optional<std::string> group;  // prompt id: samples of one group are normalised together
  std::vector<double> old_log_probs, rollout_log_probs, ref_log_probs, advantages;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t response_begin() const { return length() - response_length; }
  int64_t loss_tokens() const;
};

struct Dataset {
  std::string file;
  std::vector<Sample> samples;
  int64_t lines = 0;                           // non-blank lines read
  std::vector<std::string> skip_reasons;       // one a skipped line, only with skip_bad_samples
  std::map<std::string, int64_t> skip_counts;  // the same faults in two or three words, counted
  int64_t total_tokens() const;
  int64_t longest() const;
  // Hash of everything that training reads: count, order, ids, tokens, masks, fields.
  uint64_t digest() const;
};

}  // namespace ringfold
