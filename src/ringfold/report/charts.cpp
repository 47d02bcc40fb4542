// The pictures of drawing.h: timelines, bars, curves.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "ringfold/report/drawing.h"

namespace ringfold::drawing {
namespace {

using Text = std::back_insert_iterator<std::string>;

constexpr double kWidth = 960;  // of every picture, in SVG units
constexpr double kLeft = 64, kRight = 12;

// A round step so that about `ticks` of them cover the range.
double tick_step(double range, double ticks) {
  const double rough = std::max(range, 1e-300) / ticks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::string svg_begin(double height, const std::string& label) {
  return fmt::format("<svg viewBox=\"0 0 {} {:.1f}\" role=\"img\" aria-label=\"{}\">", kWidth, height, escaped(label));
}

std::string in_unit(double value, Unit unit) {
  if (unit == Unit::kShare) return fmt::format("{:.4g} %", 100 * value);
  if (unit == Unit::kTime) return duration(value);
  const bool whole = value == std::round(value) && std::abs(value) < 1e15;
  return whole || (std::abs(value) >= 1e4 && std::abs(value) < 1e15) ? with_thousands(std::llround(value))
                                                                     : fmt::format("{:.4g}", value);
}

void draw_box(Text out, const Timeline::Box& box, double row, double scale) {
  const double x = kLeft + box.start_us * scale, y = box.first_rank * row;
  const double width = std::max(0.0, box.end_us - box.start_us) * scale, height = box.ranks * row;
  fmt::format_to(out,
                 "<rect class=\"pack\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\">"
                 "<title>{}</title></rect>",
                 x, y, width, height, colour_of(level_of(box.cp_size)), escaped(box.tooltip));
  if (width > 26 && height > 13) {
    fmt::format_to(out, "<text class=\"in\" x=\"{:.1f}\" y=\"{:.1f}\">cp {}</text>", x + 4, y + height / 2 + 3.5,
                   box.cp_size.value());
  }
}

// The range of all points, a little widened; false where no point is finite.
struct Range {
  double x0 = 0, x1 = 0, y0 = 0, y1 = 0;
  bool any = false;

  void add(double x, double y) {
    if (!std::isfinite(y)) return;
    if (!any) x0 = x1 = x, y0 = y1 = y;
    any = true;
    x0 = std::min(x0, x), x1 = std::max(x1, x);
    y0 = std::min(y0, y), y1 = std::max(y1, y);
  }
  void widen(bool from_zero) {
    if (from_zero) y0 = std::min(y0, 0.0);
    if (y1 <= y0) y1 = y0 + std::max(std::abs(y0) * 0.1, 1e-9);
    if (x1 <= x0) x0 -= 0.5, x1 = x0 + 1;
    if (!from_zero) y0 -= 0.05 * (y1 - y0);
    y1 += 0.05 * (y1 - y0);
  }
};

// At most two points - the least and the largest - of each column, so that a long run stays a small page.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points) {
  constexpr size_t kColumns = 450;
  if (points.size() <= 2 * kColumns) return points;
  std::vector<std::pair<double, double>> kept;
  for (size_t column = 0; column < kColumns; ++column) {
    const auto first = points.begin() + static_cast<std::ptrdiff_t>(column * points.size() / kColumns);
    const auto last = points.begin() + static_cast<std::ptrdiff_t>((column + 1) * points.size() / kColumns);
    const auto [low, high] =
        std::minmax_element(first, last, [](const auto& a, const auto& b) { return a.second < b.second; });
    kept.push_back(low < high ? *low : *high);
    if (low != high) kept.push_back(low < high ? *high : *low);
  }
  return kept;
}

}  // namespace

std::string timeline_svg(const Timeline& timeline, double span_us) {
  std::string svg;
  Text out(svg);
  const double row = std::clamp(420.0 / std::max(timeline.ranks, 1), 1.5, 26.0);
  const double bottom = row * timeline.ranks;
  const double scale = (kWidth - kLeft - kRight) / std::max(span_us, 1e-9);
  svg += svg_begin(bottom + 22, "timeline of the ranks");
  fmt::format_to(out, "<rect class=\"lane\" x=\"{}\" y=\"0\" width=\"{:.1f}\" height=\"{:.1f}\"/>", kLeft,
                 timeline.end_us * scale, bottom);
  const auto every = std::bit_ceil(static_cast<unsigned>(std::max(1.0, std::ceil(13 / row))));
  for (int r = 0; r < timeline.ranks; r += static_cast<int>(every)) {
    fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">rank {}</text>", kLeft - 8,
                   r * row + std::min(row, 20.0) / 2 + 4, r);
  }
  const double step = tick_step(std::max(span_us, 1.0), 8);
  for (int tick = 0; tick * step <= span_us * 1.0001; ++tick) {
    fmt::format_to(out,
                   "<line class=\"tick\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.1f}\"/><text x=\"{0:.1f}\" "
                   "y=\"{2:.1f}\" text-anchor=\"middle\">{3}</text>",
                   kLeft + tick * step * scale, bottom + 4, bottom + 17, tick == 0 ? "0" : duration(tick * step));
  }
  for (const Timeline::Box& box : timeline.boxes) draw_box(out, box, row, scale);
  if (timeline.limit_us > 0) {
    fmt::format_to(out, "<line class=\"limit\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"-4\" y2=\"{1:.1f}\"/>",
                   kLeft + timeline.limit_us * scale, bottom + 4);
  }
  return svg + "</svg>\n";
}

std::string size_key(size_t most_level, bool with_limit) {
  std::string html = "<div class=\"key\">";
  for (size_t level = 0; level <= most_level; ++level) {
    html += fmt::format("<span><i style=\"background:{}\"></i>CP {}</span>", colour_of(level), int64_t{1} << level);
  }
  if (with_limit) html += "<span>┆ physical limit T*</span>";
  return html + "</div>\n";
}

std::string bars_svg(const std::string& label, const std::vector<Bar>& bars, double limit) {
  constexpr double kRow = 24, kGlyph = 7, kMostName = 230, kValues = 190;
  std::string svg;
  Text out(svg);
  double longest = limit, names = 60;
  for (const Bar& bar : bars) {
    longest = std::max({longest, bar.value, bar.outline});
    names = std::max(names, kGlyph * static_cast<double>(bar.name.size()));
  }
  names = std::min(names, kMostName);
  const double scale = (kWidth - names - kValues) / std::max(longest, 1e-9);
  svg += svg_begin(kRow * static_cast<double>(bars.size()) + 4, label);
  double y = 0;
  for (const Bar& bar : bars) {
    fmt::format_to(out,
                   "<text class=\"name\" x=\"0\" y=\"{:.1f}\">{}</text><rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" "
                   "height=\"{}\" rx=\"2\" fill=\"{}\"/>",
                   y + 15, escaped(bar.name), names, y + 3, bar.value * scale, kRow - 8, bar.colour);
    if (bar.outline > 0) {
      fmt::format_to(out,
                     "<rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\" fill=\"none\" "
                     "stroke=\"var(--soft)\" stroke-dasharray=\"3 3\"/>",
                     names, y + 1, bar.outline * scale, kRow - 4);
    }
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
                   names + std::max(bar.value, bar.outline) * scale + 8, y + 15, escaped(bar.text));
    y += kRow;
  }
  if (limit > 0) {
    fmt::format_to(out, "<line class=\"limit\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.1f}\"/>",
                   names + limit * scale, y);
  }
  return svg + "</svg>\n";
}

std::string series_key(const std::vector<Series>& series) {
  std::string html = "<div class=\"key\">";
  for (const Series& s : series) {
    html += fmt::format("<span><i style=\"background:{}{}\"></i>{}</span>", s.colour, s.dashed ? ";opacity:.6" : "",
                        escaped(s.name));
  }
  return html + "</div>\n";
}

std::string lines_svg(const std::string& label, const std::vector<Series>& series, Unit unit, bool from_zero) {
  constexpr double kHeight = 200, kFoot = 22;
  constexpr size_t kMostDots = 150;
  Range range;
  for (const Series& s : series) {
    for (const auto& [x, y] : s.points) range.add(x, y);
  }
  std::string svg = svg_begin(kHeight + kFoot, label);
  Text out(svg);
  if (!range.any) return svg + "<text x=\"64\" y=\"30\">no finite value</text></svg>\n";
  range.widen(from_zero);
  const double scale_x = (kWidth - kLeft - kRight) / (range.x1 - range.x0);
  const double scale_y = (kHeight - 8) / (range.y1 - range.y0);
  const auto at_x = [&](double x) { return kLeft + (x - range.x0) * scale_x; };
  const auto at_y = [&](double y) { return kHeight - (y - range.y0) * scale_y; };

  const double step_y = tick_step(range.y1 - range.y0, 6);
  // + 0.0: the first tick may be -0.
  for (double k = std::ceil(range.y0 / step_y - 1e-9) + 0.0; k * step_y <= range.y1; ++k) {
    fmt::format_to(out,
                   "<line class=\"tick\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" "
                   "text-anchor=\"end\">{}</text>",
                   kLeft, kWidth - kRight, at_y(k * step_y), at_y(k * step_y), kLeft - 6, at_y(k * step_y) + 4,
                   in_unit(k * step_y, unit));
  }
  const double step_x = std::max(1.0, tick_step(range.x1 - range.x0, 10));
  for (double k = std::ceil(range.x0 / step_x - 1e-9) + 0.0; k * step_x <= range.x1 + 1e-9; ++k) {
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.0f}</text>", at_x(k * step_x),
                   kHeight + 16, k * step_x);
  }
  for (const Series& s : series) {
    const auto points = thinned(s.points);
    std::string path;
    bool pen_down = false;
    for (const auto& [x, y] : points) {
      if (std::isfinite(y)) path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", at_x(x), at_y(y));
      pen_down = std::isfinite(y);
    }
    fmt::format_to(out, "<path class=\"curve\" stroke=\"{}\"{} d=\"{}\"/>", s.colour,
                   s.dashed ? " stroke-dasharray=\"5 4\"" : "", path);
    if (points.size() > kMostDots) continue;
    for (const auto& [x, y] : points) {
      if (!std::isfinite(y)) continue;
      fmt::format_to(out,
                     "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.4\" fill=\"{}\"><title>{}, step {:.0f}: "
                     "{}</title></circle>",
                     at_x(x), at_y(y), s.colour, escaped(s.name), x, in_unit(y, unit));
    }
  }
  return svg + "</svg>\n";
}

}  // namespace ringfold::drawing
