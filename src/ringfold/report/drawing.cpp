#include "ringfold/report/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

namespace ringfold::drawing {
namespace {

// Colours of CP sizes 1, 2, 4 ...: middle lightness, so that they stand on white and on black.
constexpr const char* kColours[] = {"#5b8fd6", "#2fa39a", "#6fae3f", "#d9a514",
                                    "#e8792b", "#d64a5f", "#b0509b", "#7d63c9"};

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--page:#fbfbfa;--ink:#1c1e21;--soft:#62676e;--line:#d9dbde;--lane:#eceeef;--accent:#2b6cb0;--warm:#c05621}
@media (prefers-color-scheme:dark){:root{--page:#15171a;--ink:#e7e9ec;--soft:#9aa1aa;--line:#353a41;--lane:#22262b;--accent:#7db4f0;--warm:#f0a35e}}
*{box-sizing:border-box}
body{margin:0 auto;padding:28px 20px 48px;max-width:1040px;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:22px;line-height:1.3;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:16px;margin:32px 0 6px}
p{margin:4px 0 10px;color:var(--soft)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:1px;margin:18px 0 4px;background:var(--line);border:1px solid var(--line);border-radius:6px;overflow:hidden}
.facts div{background:var(--page);padding:10px 12px}.facts b{display:block;font-size:20px;font-variant-numeric:tabular-nums}.facts span{color:var(--soft);font-size:13px}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{fill:var(--soft);font:11px system-ui,sans-serif}svg .name{fill:var(--ink);font-size:12px}svg .in{fill:#fff;font-size:11px;font-weight:600;pointer-events:none}
.lane{fill:var(--lane)}.tick{stroke:var(--line)}.limit{stroke:var(--ink);stroke-dasharray:4 3}
.pack{stroke:var(--page);stroke-width:.6}.pack:hover{stroke:var(--ink);stroke-width:1.5}
.curve{fill:none;stroke-width:1.6;stroke-linejoin:round}.dot{stroke:none}.dot:hover{stroke:var(--ink);stroke-width:2}
.key{display:flex;flex-wrap:wrap;gap:4px 16px;margin:6px 0;color:var(--soft);font-size:13px}.key i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:5px}
table{border-collapse:collapse;margin:6px 0;font-variant-numeric:tabular-nums}td,th{padding:3px 18px 3px 0;text-align:right;font-weight:400;border-bottom:1px solid var(--line)}th{color:var(--soft);font-size:13px}td:first-child,th:first-child{text-align:left}
)";

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < ' ' && c != '\n' ? '?' : c;
    }
  }
  return out;
}

std::string with_thousands(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const int64_t first = digits[0] == '-' ? 1 : 0;
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

std::string duration(double us) {
  if (us >= 1e6) return fmt::format("{:.2f} s", us / 1e6);
  if (us >= 1e5 || us == 0) return fmt::format("{:.0f} ms", us / 1e3);
  return us >= 1e3 ? fmt::format("{:.1f} ms", us / 1e3) : fmt::format("{:.0f} us", us);
}

size_t level_of(CpSize c) {
  return static_cast<size_t>(std::countr_zero(static_cast<unsigned>(c.value())));
}

const char* colour_of(size_t level) {
  return kColours[std::min(level, std::size(kColours) - 1)];
}

Page::Page(const std::string& title) {
  html_ = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{}</title><style>{}</style></head><body>\n",
      escaped(title), kStyle);
}

void Page::headline(const std::string& text) {
  html_ += fmt::format("<h1>{}</h1>\n", escaped(text));
}

void Page::section(const std::string& title, const std::string& about) {
  html_ += fmt::format("<h2>{}</h2>", escaped(title));
  if (!about.empty()) paragraph(about);
}

void Page::paragraph(const std::string& text) {
  html_ += fmt::format("<p>{}</p>\n", escaped(text));
}

void Page::facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  html_ += "<div class=\"facts\">";
  for (const auto& [value, meaning] : facts) {
    html_ += fmt::format("<div><b>{}</b><span>{}</span></div>", escaped(value), escaped(meaning));
  }
  html_ += "</div>\n";
}

void Page::table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) {
  html_ += "<table><tr>";
  for (const std::string& name : header) html_ += fmt::format("<th>{}</th>", escaped(name));
  html_ += "</tr>";
  for (const auto& row : rows) {
    html_ += "<tr>";
    for (const std::string& cell : row) html_ += fmt::format("<td>{}</td>", escaped(cell));
    html_ += "</tr>";
  }
  html_ += "</table>\n";
}

std::string Page::finish() {
  return std::move(html_) + "</body></html>\n";
}

}  // namespace ringfold::drawing
