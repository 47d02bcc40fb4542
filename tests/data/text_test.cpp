// UTF-8, NFC and split patterns by themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ringfold/base/error.h"
#include "ringfold/data/nfc.h"
#include "ringfold/data/split_pattern.h"
#include "ringfold/data/utf8.h"

namespace ringfold {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Utf8, every_code_point_is_valid_and_comes_back) {
  for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 61) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "a";
    append_utf8(c, text);
    size_t pos = 1;
    EXPECT_EQ(next_code_point(text, pos), c);
    EXPECT_EQ(pos, text.size());
    EXPECT_EQ(invalid_utf8_offset(text), std::nullopt) << static_cast<uint32_t>(c);
  }
}

TEST(Utf8, broken_sequences_are_found_where_they_begin) {
  const std::pair<std::string, size_t> cases[] = {
      {"\x80", 0},
      {"abc\xC3", 3},
      {"abc\xC3(", 3},
      {"\xC0\x80", 0},
      {"\xC1\xBF", 0},
      {"\xE0\x9F\xBF", 0},
      {"\xED\xA0\x80", 0},
      {"\xF0\x8F\xBF\xBF", 0},
      {"\xF4\x90\x80\x80", 0},
      {"\xF5\x80\x80\x80", 0},
      {"\u00e9\xE2\x82", 2},
      {"123456789\xFF", 9},
      {"12345678\u4f60\xFE", 11},
      {"\xE2\x28\xA1", 0},
      {"\xF0\x9F\x98", 0},
  };
  for (const auto& [text, offset] : cases) EXPECT_EQ(invalid_utf8_offset(text), offset) << testing::PrintToString(text);
  EXPECT_EQ(invalid_utf8_offset(""), std::nullopt);
}

TEST(Utf8, messages_show_one_line_of_it) {
  EXPECT_EQ(printable("a\nb\x7F \u4f60\"x\""), "a?b? \u4f60\"x\"");
  EXPECT_EQ(printable("a\xFFz"), "a?z");
  EXPECT_EQ(printable("\u4f60\u597d", 4), "\u4f60...");
  EXPECT_EQ(printable("\u4f60\u597d", 6), "\u4f60\u597d");
}

TEST(Nfc, composes_reorders_and_replaces) {
  const std::pair<std::string, std::string> cases[] = {
      {"e\u0301", "\u00e9"},                   // composed
      {"\u212b", "\u00c5"},                    // a singleton
      {"\u0958", "\u0915\u093c"},              // excluded from composition
      {"q\u0301\u0316", "q\u0316\u0301"},      // marks in order of their classes
      {"a\u0316\u0301", "\u00e1\u0316"},       // composed across a mark of another class
      {"a\u0301\u0301", "\u00e1\u0301"},       // blocked by the same class
      {"\u1100\u1161\u11a8", "\uac01"},        // Hangul
      {"\uac00\u11a8", "\uac01"},              // ... from a syllable
      {"\u0301x", "\u0301x"},                  // a mark without a letter
      {"\u09c7\u09be", "\u09cb"},              // a starter joined to the one before it
      {"\U0001D15E", "\U0001D157\U0001D165"},  // beyond the BMP
      {"\uf900 \U0002f800", "\u8c48 \u4e3d"},  // compatibility ideographs
      {"ae\u0301\u0316 z\u0302 y", "a\u00e9\u0316 \u1e91 y"},
      {"\ufb01 \u2460 \uff21", "\ufb01 \u2460 \uff21"},  // NFC leaves compatibility forms alone
  };
  for (const auto& [text, normal] : cases) {
    std::string buffer;
    EXPECT_EQ(to_nfc(text, buffer), normal) << text;
    EXPECT_EQ(to_nfc("x-" + text + "zz", buffer), "x-" + normal + "zz") << text;
    EXPECT_EQ(to_nfc(normal, buffer), normal) << text;
  }
}

TEST(Nfc, text_that_stays_is_not_copied) {
  std::string buffer;
  for (const std::string text : {"", "ascii only", "na\u00efve", "\u4f60\u597d \ud55c\uad6d \U0001F642"}) {
    EXPECT_EQ(to_nfc(text, buffer).data(), text.data()) << text;
  }
}

TEST(Nfc, a_long_run_of_marks_is_sorted_in_time) {
  std::string text = "a", buffer;
  for (int i = 0; i < 200'000; ++i) text += i % 2 ? "\u0316" : "\u0301";
  const std::string_view normal = to_nfc(text, buffer);
  EXPECT_EQ(normal.substr(0, 4), "\u00e1\u0316");
  EXPECT_EQ(normal.size(), text.size() - 1);
}

std::vector<std::string> split(const std::string& pattern, const std::string& text) {
  const SplitPattern compiled(pattern, "p");
  SplitPattern::Scratch scratch;
  std::vector<std::string> words;
  size_t from = 0;
  while (const auto match = compiled.find(text, from, scratch)) {
    words.push_back(text.substr(match->begin, match->end - match->begin));
    from = match->end;
  }
  return words;
}

TEST(SplitPattern, unicode_classes_and_look_ahead_hold) {
  EXPECT_THAT(split(R"(\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+)",
                    "a\u00e9\u4f60 \u0663\u0664"
                    "123  x"),
              ElementsAre("a\u00e9\u4f60", " ",
                          "\u0663\u0664"
                          "1",
                          "23", " ", " ", "x"));
  EXPECT_THAT(split(R"((?i:'s|'t))", "'S't'\u017f"), ElementsAre("'S", "'t", "'\u017f"));
  EXPECT_THAT(split(R"(\s)", "\u180e\u0085\u3000\u200b"), ElementsAre("\u0085", "\u3000"));
  EXPECT_THAT(split(R"([^\s]+)", "a\u0085\u180e"), ElementsAre("a", "\u180e"));
  EXPECT_THAT(split(R"(x*)", "\u4f60xx\u4f60x"), ElementsAre("xx", "x")) << "empty matches are none";
  EXPECT_THAT(split(R"(\p{Han}+)", "a\u4f60\u597d\u3002"), ElementsAre("\u4f60\u597d"))
      << "a script without its extensions";
}

TEST(SplitPattern, what_oniguruma_reads_differently_is_refused_by_name) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([a[b]])", "a class inside a class at byte 2"},
      {R"([a&&b])", "an intersection of classes at byte 2"},
      {R"([]a])", "] as the first character of a class at byte 1"},
      {R"(\p{N}{1,3}+)", "\"+\" behind a count at byte 10"},
      {R"(a{,3})", "\"{\" without a count at byte 1"},
      {R"(\w+)", "\"\\w\" at byte 0"},
      {R"(\bx)", "\"\\b\" at byte 0"},
      {R"(\h)", "\"\\h\" at byte 0"},
      {R"((a)\1)", "\"\\1\" at byte 3"},
      {R"(^a)", "an anchor at byte 0"},
      {R"((?x: a))", "this kind of group at byte 0"},
      {R"((*VERB))", "\"(*\" at byte 0"},
      {R"(\pL)", "a property without {} at byte 0"},
      {"a\\", "\"\\ \" at byte 1"},
  };
  for (const auto& [pattern, what] : cases) {
    EXPECT_THAT([&] { SplitPattern(pattern, "[tokenizer] F: pre_tokenizer"); },
                ::testing::ThrowsMessage<DataError>(std::string("[tokenizer] F: pre_tokenizer: pattern ") + pattern +
                                                    ": " + what + " is not supported"))
        << pattern;
  }
  EXPECT_THAT([] { SplitPattern("a(b", "W"); },
              ::testing::ThrowsMessage<DataError>(StartsWith("W: pattern a(b: missing")));
  EXPECT_THAT([] { SplitPattern(R"(\p{Nonsense})", "W"); },
              ::testing::ThrowsMessage<DataError>(HasSubstr("unknown property")));
  EXPECT_THAT([] { SplitPattern(std::string(20000, 'a'), "W"); },
              ::testing::ThrowsMessage<DataError>("W: pattern: got 20000 bytes, expected at most 16384"));
}

TEST(SplitPattern, a_pattern_that_never_ends_gives_up) {
  const SplitPattern pattern("(?:a+)+b|(?:a|aa)+c", "W");
  SplitPattern::Scratch scratch;
  EXPECT_THAT([&] { pattern.find(std::string(200, 'a'), 0, scratch); },
              ::testing::ThrowsMessage<DataError>(
                  StartsWith("[tokenizer] split pattern: match limit exceeded at byte 0 of 200")));
}

}  // namespace
}  // namespace ringfold
