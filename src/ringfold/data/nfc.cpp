#include "ringfold/data/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "ringfold/base/error.h"
#include "ringfold/data/utf8.h"

namespace ringfold {
namespace {

constexpr char32_t kCodePoints = 0x110000;
constexpr auto kNfc = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

void append_decomposed(char32_t code_point, std::vector<utf8proc_int32_t>& out) {
  constexpr size_t kLongestDecomposition = 8;  // 4 in Unicode
  int boundary_class = 0;
  const size_t size = out.size();
  out.resize(size + kLongestDecomposition);
  const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), out.data() + size,
                                                         kLongestDecomposition, kNfc, &boundary_class);
  RINGFOLD_ASSERT(count >= 0 && count <= static_cast<utf8proc_ssize_t>(kLongestDecomposition),
                  "a longer decomposition");
  out.resize(size + static_cast<size_t>(count));
}

// Code points that NFC never changes, moves or joins to what stands before them: text may be cut in front of one.
std::vector<bool> find_inert() {
  std::vector<bool> inert(kCodePoints, true);
  std::vector<utf8proc_int32_t> parts;
  for (char32_t c = 0; c < kCodePoints; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;  // surrogates, which valid UTF-8 does not hold
    if (combining_class(static_cast<utf8proc_int32_t>(c)) != 0) inert[c] = false;
    parts.clear();
    append_decomposed(c, parts);
    if (parts.size() == 1 && parts[0] == static_cast<utf8proc_int32_t>(c)) continue;
    // Whatever may be joined to something stands at the end of the decomposition of the whole.
    for (size_t i = 1; i < parts.size(); ++i) inert[static_cast<size_t>(parts[i])] = false;
    const utf8proc_ssize_t size =
        utf8proc_normalize_utf32(parts.data(), static_cast<utf8proc_ssize_t>(parts.size()), kNfc);
    if (size != 1 || parts[0] != static_cast<utf8proc_int32_t>(c)) inert[c] = false;
  }
  return inert;
}

// utf8proc_map would do, but for its insertion sort, which takes forever on a long run of marks.
void append_normalized(std::string_view text, std::string& out) {
  std::vector<utf8proc_int32_t> points;
  for (size_t pos = 0; pos < text.size();) append_decomposed(next_code_point(text, pos), points);
  const auto is_mark = [](utf8proc_int32_t c) { return combining_class(c) != 0; };
  for (auto at = points.begin(); at != points.end();) {
    const auto begin = std::find_if(at, points.end(), is_mark);
    at = std::find_if_not(begin, points.end(), is_mark);
    std::stable_sort(begin, at, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
  }
  const utf8proc_ssize_t size =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()), kNfc);
  for (utf8proc_ssize_t i = 0; i < size; ++i) append_utf8(static_cast<char32_t>(points[static_cast<size_t>(i)]), out);
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& buffer) {
  // All code points below U+0300 are inert, and their bytes are below its first byte.
  const auto may_change = [](char c) { return static_cast<unsigned char>(c) >= 0xCC; };
  if (std::none_of(text.begin(), text.end(), may_change)) return text;
  static const std::vector<bool> inert = find_inert();
  buffer.clear();
  size_t copied = 0, last_inert = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    if (inert[next_code_point(text, pos)]) {
      last_inert = begin;
      continue;
    }
    size_t end = pos;
    while (end < text.size() && !inert[next_code_point(text, pos)]) end = pos;
    buffer.append(text, copied, last_inert - copied);
    append_normalized(text.substr(last_inert, end - last_inert), buffer);
    copied = pos = end;
  }
  if (copied == 0) return text;
  buffer.append(text, copied);
  return buffer;
}

}  // namespace ringfold
