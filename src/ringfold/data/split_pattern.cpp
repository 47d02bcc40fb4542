#include "ringfold/data/split_pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

constexpr size_t kLongestPattern = 1 << 14;
constexpr size_t kJitStackBytes = 8 << 20;
// Steps of one match: more than any sane pattern takes on a text of that size, and still an end to the others.
constexpr uint32_t kMatchSteps = 10'000'000, kMatchStepsPerByte = 32;

// Reads a pattern left to right and writes it for PCRE2.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (pos_ < pattern_.size()) {
      if (in_class_) {
        in_class();
      } else {
        outside();
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(fmt::format("{}: pattern {}: {} at byte {} is not supported", where_, pattern_, what, pos_));
  }
  bool at(std::string_view text) const { return pattern_.substr(pos_).starts_with(text); }
  void copy(size_t count) {
    out_ += pattern_.substr(pos_, count);
    pos_ += count;
  }

  void in_class() {
    if (pattern_[pos_] == '\\') return escape();
    if (pattern_[pos_] == '[') refuse("a class inside a class");
    if (at("&&")) refuse("an intersection of classes");
    if (pattern_[pos_] == ']') in_class_ = false;
    copy(1);
  }

  void outside() {
    const char c = pattern_[pos_];
    if (c == '\\') return escape();
    if (c == '^' || c == '$') refuse("an anchor");
    if (c == '{') return interval();
    if (c == '(' && at("(?")) return group();
    if (c == '(' && at("(*")) refuse("\"(*\"");
    if (c == '[') {
      in_class_ = true;
      copy(at("[^") ? 2 : 1);
      if (at("]")) refuse("] as the first character of a class");
      return;
    }
    copy(1);
  }

  void group() {
    constexpr std::string_view kKnown[] = {"(?i:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown), [this](auto head) { return at(head); });
    if (known == std::end(kKnown)) refuse("this kind of group");
    copy(known->size());
  }

  // {n}, {n,}, {n,m}. Oniguruma reads a + behind it as one more repetition, PCRE2 as possessive; {,m} differs too.
  void interval() {
    const size_t close = pattern_.find('}', pos_);
    const std::string_view inside = pattern_.substr(pos_ + 1, close == std::string_view::npos ? 0 : close - pos_ - 1);
    const bool digits = !inside.empty() && inside[0] >= '0' && inside[0] <= '9' &&
                        inside.find_first_not_of("0123456789,") == std::string_view::npos;
    if (!digits) refuse("\"{\" without a count");
    copy(inside.size() + 2);
    if (at("+")) refuse("\"+\" behind a count");
  }

  void escape() {
    const char c = pos_ + 1 < pattern_.size() ? pattern_[pos_ + 1] : '\0';
    const auto replace = [this](std::string_view text) {
      out_ += text;
      pos_ += 2;
    };
    // PCRE2's \s also holds U+180E, which has not been a space since Unicode 6.3.
    if (c == 's') return replace("\\p{White_Space}");
    if (c == 'S') return replace("\\P{White_Space}");
    if (c == 'p' || c == 'P') return property();
    if (std::string_view("dDrntf").find(c) != std::string_view::npos) return copy(2);
    if (c > ' ' && c < 0x7F && !std::isalnum(static_cast<unsigned char>(c))) return copy(2);
    refuse(fmt::format("\"\\{}\"", c == '\0' ? ' ' : c));
  }

  // \p{L} and the like; a longer name is a script, which PCRE2 would take with its extensions.
  void property() {
    const size_t close = pattern_.find('}', pos_);
    if (pos_ + 2 >= pattern_.size() || pattern_[pos_ + 2] != '{' || close == std::string_view::npos) {
      refuse("a property without {}");
    }
    std::string_view name = pattern_.substr(pos_ + 3, close - pos_ - 3);
    out_ += pattern_.substr(pos_, 3);
    if (name.starts_with('^')) {
      out_ += '^';
      name.remove_prefix(1);
    }
    if (name.size() > 2) out_ += "sc:";
    out_ += name;
    out_ += '}';
    pos_ = close + 1;
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t pos_ = 0;
  bool in_class_ = false;
  std::string out_;
};

std::string error_text(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

struct SplitPattern::Code {
  pcre2_code* code = nullptr;
  bool has_jit = false;
  ~Code() { pcre2_code_free(code); }
};

struct SplitPattern::Scratch::Handles {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
  Handles() {
    if (!data || !context) throw std::bad_alloc();
    if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Handles() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

SplitPattern::Scratch::Scratch() : handles_(std::make_unique<Handles>()) {}
SplitPattern::Scratch::~Scratch() = default;
SplitPattern::Scratch::Scratch(Scratch&&) noexcept = default;
SplitPattern::Scratch& SplitPattern::Scratch::operator=(Scratch&&) noexcept = default;

SplitPattern::SplitPattern(const std::string& pattern, const std::string& where) : code_(std::make_unique<Code>()) {
  if (pattern.size() > kLongestPattern) {
    throw DataError(
        fmt::format("{}: pattern: got {} bytes, expected at most {}", where, pattern.size(), kLongestPattern));
  }
  const std::string translated = to_pcre2(pattern, where);
  int error = 0;
  size_t offset = 0;
  struct ContextFree {
    void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  };
  const std::unique_ptr<pcre2_compile_context, ContextFree> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (!code_->code) {
    throw DataError(
        fmt::format("{}: pattern {}: {}, at byte {} of {}", where, pattern, error_text(error), offset, translated));
  }
  // Without a JIT (some hardened hosts forbid it) the interpreter matches the same, more slowly.
  code_->has_jit = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;

std::optional<SplitPattern::Match> SplitPattern::find(std::string_view text, size_t from, Scratch& scratch) const {
  const Scratch::Handles& handles = *scratch.handles_;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const uint64_t steps = kMatchSteps + kMatchStepsPerByte * static_cast<uint64_t>(text.size());
  pcre2_set_match_limit(handles.context, static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
  while (from < text.size()) {
    int count = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code_->has_jit) {
      count = pcre2_jit_match(code_->code, subject, text.size(), from, 0, handles.data, handles.context);
    }
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      count = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, handles.data,
                          handles.context);
    }
    if (count == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (count < 0) {
      throw DataError(fmt::format("[tokenizer] split pattern: {} at byte {} of {}. Hint: leave the sample out",
                                  error_text(count), from, text.size()));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(handles.data);
    if (ends[1] > ends[0]) return Match{ends[0], ends[1]};
    from = ends[1] + 1;
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
  }
  return std::nullopt;
}

}  // namespace ringfold
