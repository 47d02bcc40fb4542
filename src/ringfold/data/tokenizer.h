// Byte-level BPE tokenizer of a Hugging Face model (Qwen, Llama 3, GPT-2 families): text <-> ids, the same ids as the
// package `tokenizers` gives without special tokens of its own. docs/reference/data.md says which files are read.
// Text: added tokens cut out -> NFC (where the tokenizer has it) -> split pattern -> merges of each word's bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ringfold {

// Immutable: any number of threads may use one. Copies share their tables.
class Tokenizer {
 public:
  // Room and word cache of one thread, for one tokenizer.
  class Workspace {
   public:
    explicit Workspace(const Tokenizer& tokenizer);
    ~Workspace();
    Workspace(Workspace&&) noexcept;
    Workspace& operator=(Workspace&&) noexcept;

   private:
    friend class Tokenizer;
    struct State;
    std::unique_ptr<State> state_;
  };

  // tokenizer.json of the folder, else vocab.json and merges.txt with tokenizer_config.json where there is one.
  // All three throw DataError "[tokenizer] FILE: what: got X, expected Y" for files that are missing, broken, at odds
  // with themselves, or of another kind of tokenizer (model, normalizer, pre-tokenizer by name).
  static Tokenizer from_dir(const std::string& dir);
  static Tokenizer from_json(std::string_view tokenizer_json, const std::string& file = "tokenizer.json");
  // The parts of `dir` as texts, for messages only; no tokenizer_config.json: empty, read as a Qwen tokenizer's.
  static Tokenizer from_vocab(std::string_view vocab_json, std::string_view merges_txt,
                              std::string_view tokenizer_config_json, const std::string& dir = ".");

  // Appends the ids of `text`. Added tokens spelled out in it become their id; nothing is put before or after. Throws
  // DataError "[tokenizer] invalid UTF-8 at byte N" and for a text on which the split pattern gives up.
  void encode(std::string_view text, Workspace& workspace, std::vector<int64_t>& ids) const;
  std::vector<int64_t> encode(std::string_view text) const;  // with a workspace of its own: for single texts

  // The bytes that the ids stand for: decode(encode(text)) == normalized(text). Ids that end inside a character give
  // incomplete UTF-8. Throws DataError for an id without a token.
  std::string decode(std::span<const int64_t> ids) const;

  // `text` as the ids hold it: NFC between added tokens, where the tokenizer normalizes.
  std::string normalized(std::string_view text) const;

  // Id of a token as the tokenizer's files spell it, e.g. "<|im_end|>".
  std::optional<int64_t> id_of(std::string_view token) const;
  // The first special token (such as <|im_end|>, but not <think>) that the text spells out; empty when none.
  std::string_view special_in(std::string_view text) const;

  int64_t vocab_size() const;  // largest id + 1

 private:
  struct Tables;
  explicit Tokenizer(std::shared_ptr<const Tables> tables) : tables_(std::move(tables)) {}
  std::shared_ptr<const Tables> tables_;
};

}  // namespace ringfold
