// JSONL and JSONL.gz with token ids (spec 9). Fields: tokens; response_length and / or loss_mask; reward, group,
// old_log_probs, rollout_log_probs, ref_log_probs, advantages. A reader of outside bytes: every length is checked.
#pragma once

#include <cstdint>
#include <string>

#include "ringfold/data/sample.h"

namespace ringfold {

struct DataOptions {
  int64_t vocab_size = 0;         // 0: ids are only checked for >= 0
  int64_t max_tokens = 0;         // longest sample accepted (--rollout-max-context-len); 0: no limit
  bool skip_bad_samples = false;  // train on the rest, report how many were skipped and why
};

// Reads the whole file. DataError "[data] FILE:LINE (sample ID): what ... Hint: ..." for: unreadable file, broken JSON,
// wrong types, empty sample, id outside the vocabulary (position, id, vocabulary size), a mask or log-prob length
// different from the response (both numbers), a response that starts at token 0, a sample too long (its length, the
// limit), text fields (prompt, messages) that need a tokenizer, unknown keys with the nearest known one, no sample left.
Dataset load_jsonl(const std::string& file, const DataOptions& options);

}  // namespace ringfold
