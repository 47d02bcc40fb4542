// The drawing library of the HTML pages (plan_html.h, run_html.h): a page that opens offline - inline SVG and CSS, no
// script, nothing fetched - in light and dark by the reader's setting.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ringfold/base/ids.h"

namespace ringfold::drawing {

// Text for HTML: & < > " escaped, control characters as '?'.
std::string escaped(std::string_view text);
std::string with_thousands(int64_t value);
// "340 us", "12.3 ms", "340 ms", "1.20 s".
std::string duration(double us);
size_t level_of(CpSize c);
// Of CP size 2^level; sizes above the eighth share a colour.
const char* colour_of(size_t level);

// Grows from top to bottom. Texts are escaped; SVG is taken as it is.
class Page {
 public:
  explicit Page(const std::string& title);
  void headline(const std::string& text);
  void section(const std::string& title, const std::string& about = "");
  void paragraph(const std::string& text);
  // Big numbers in a row: value and meaning.
  void facts(const std::vector<std::pair<std::string, std::string>>& facts);
  void table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows);
  void add(const std::string& svg) { html_ += svg; }
  std::string finish();

 private:
  std::string html_;
};

// Who runs what, when: one row a rank, a box a pack.
struct Timeline {
  struct Box {
    int first_rank = 0, ranks = 1;
    double start_us = 0, end_us = 0;
    CpSize cp_size{1};
    std::string tooltip;  // lines
  };
  int ranks = 0;
  double end_us = 0;    // grey until there: idle where no box is
  double limit_us = 0;  // a dashed line; 0: none
  std::vector<Box> boxes;
};
// `span_us`: time at the right edge, the same for pictures to compare.
std::string timeline_svg(const Timeline& timeline, double span_us);
// What the colours mean, up to CP size 2^most_level.
std::string size_key(size_t most_level, bool with_limit);

struct Bar {
  std::string name;
  double value = 0;
  double outline = 0;  // a dashed frame of another value; 0: none
  std::string text;    // beside it
  std::string colour;
};
// Horizontal bars. `limit`: a dashed line; 0: none.
std::string bars_svg(const std::string& label, const std::vector<Bar>& bars, double limit = 0);

struct Series {
  std::string name;
  std::string colour;
  std::vector<std::pair<double, double>> points;  // by x; values that are not finite leave a gap
  bool dashed = false;
};
enum class Unit { kPlain, kShare, kTime };  // of y; time in us
// Curves over steps. y begins at 0 with `from_zero`.
std::string lines_svg(const std::string& label, const std::vector<Series>& series, Unit unit, bool from_zero);
// Names of the series with their colours.
std::string series_key(const std::vector<Series>& series);

// Colours for curves, not those of CP sizes.
inline constexpr const char* kAccent = "var(--accent)";
inline constexpr const char* kSoft = "var(--soft)";
inline constexpr const char* kWarm = "var(--warm)";

}  // namespace ringfold::drawing
