// What the files of a tokenizer say, checked piece by piece but not yet as a whole.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ringfold/data/bpe.h"

namespace ringfold {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = false;
  bool normalized = false;  // searched for after normalization, else before it
};

struct TokenizerSpec {
  std::string file;                                         // begins messages: "[tokenizer] FILE"
  std::vector<std::pair<std::string, TokenId>> vocab;       // in GPT-2's characters for bytes
  std::vector<std::pair<std::string, std::string>> merges;  // in order of rank
  std::vector<std::string> patterns;                        // applied one after the other, in Oniguruma's words
  std::vector<AddedToken> added;
  bool nfc = false;
  bool ignore_merges = false;  // a word that is a token by itself is not merged
};

// Both throw DataError.
TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& file);
// `dir` for messages. An empty config is read as Qwen's.
TokenizerSpec parse_vocab_and_merges(std::string_view vocab_json, std::string_view merges_txt,
                                     std::string_view config_json, const std::string& dir);

}  // namespace ringfold
