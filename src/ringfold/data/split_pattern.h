// The regular expression by which a tokenizer cuts text into words, on PCRE2. Patterns are written for Oniguruma
// (Hugging Face `tokenizers`); what the two read differently is translated, or refused by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ringfold {

class SplitPattern {
 public:
  // What a thread needs to match: not shared between threads, shared by the patterns that it uses.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(Scratch&&) noexcept;
    Scratch& operator=(Scratch&&) noexcept;

   private:
    friend class SplitPattern;
    struct Handles;
    std::unique_ptr<Handles> handles_;
  };

  // Throws DataError, which begins with `where`, for a pattern that is broken or not supported.
  SplitPattern(const std::string& pattern, const std::string& where);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  struct Match {
    size_t begin, end;  // bytes
  };
  // First non-empty match at or after byte `from` of valid UTF-8; look-arounds see the whole text. Throws DataError
  // when the pattern needs too many steps.
  std::optional<Match> find(std::string_view text, size_t from, Scratch& scratch) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

// The pattern in PCRE2's words. Throws DataError as above.
std::string to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace ringfold
