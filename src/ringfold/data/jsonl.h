// JSONL and JSONL.gz (docs/reference/data.md). Fields: tokens, or text, or prompt and response, or messages (with
// tools); response_length and / or loss_mask; reward, group, old_log_probs, rollout_log_probs, ref_log_probs,
// advantages; meta, which is never read. A reader of outside bytes: every length is checked, line length and nesting
// are bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ringfold/data/sample.h"
#include "ringfold/data/tokenizer.h"

namespace ringfold {

struct DataOptions {
  int64_t vocab_size = 0;                                      // 0: ids are only checked for >= 0
  int64_t max_tokens = 0;                                      // longest sample accepted; 0: no limit
  std::string max_tokens_flags = "--rollout-max-context-len";  // what says so, for the message
  bool skip_bad_samples = false;  // train on the rest, report how many were skipped and why
  int64_t max_line_bytes = int64_t{256} << 20;
  std::shared_ptr<const Tokenizer> tokenizer =
      nullptr;      // for samples that come as text (--tokenizer); null: they are refused
  int threads = 0;  // that read lines; the result never depends on it; 0: one a core, at most 16
};

// Reads the whole file. DataError "[data] FILE:LINE (sample ID): what ... Hint: ..." for: unreadable file, broken JSON,
// wrong types, empty sample, id outside the vocabulary (position, id, vocabulary size), a mask or log-prob length
// different from the response (both numbers), a response that starts at token 0, a sample too long (its length, the
// limit), text without a tokenizer, what is wrong with a chat, images, invalid UTF-8 (byte offset), unknown keys with
// the nearest known one, no sample left. With several faults the first in the file counts.
Dataset load_jsonl(const std::string& file, const DataOptions& options);

// "1 skipped of 8 samples of FILE. First: ..." with the reasons counted; empty when nothing was skipped.
std::string skip_summary(const Dataset& dataset);

// The message of a sample longer than the limit, after its "(sample ID): "; shared with dry runs over bare lengths.
std::string too_long_message(int64_t tokens, int64_t limit, const std::string& flags = "--rollout-max-context-len");

}  // namespace ringfold
