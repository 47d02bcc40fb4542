#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "ringfold/report/metrics.h"

namespace ringfold {
namespace {

constexpr int kBarCells = 24;

std::string duration(double seconds) {
  if (!(seconds < 360000)) return "--";
  const auto whole = static_cast<int64_t>(std::lround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string bar(int64_t step, int64_t total_steps) {
  const double share =
      std::clamp(static_cast<double>(step) / static_cast<double>(std::max<int64_t>(total_steps, 1)), 0.0, 1.0);
  const int full = static_cast<int>(share * kBarCells);
  return fmt::format("[{}{}] ", std::string(static_cast<size_t>(full), '#'),
                     std::string(static_cast<size_t>(kBarCells - full), '.'));
}

// Columns as a terminal counts them: UTF-8 continuation bytes take none.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

Progress::Progress(int64_t total_steps, bool enabled)
    : total_steps_(total_steps), enabled_(enabled), terminal_(enabled && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (bar_open_) std::fputc('\n', stderr);
}

void Progress::step(const StepMetrics& metrics) {
  if (!enabled_) return;
  elapsed_ms_ += metrics.step_ms;
  ++steps_seen_;
  const double eta_s = elapsed_ms_ / 1000 / static_cast<double>(steps_seen_) *
                       static_cast<double>(std::max<int64_t>(total_steps_ - metrics.step, 0));
  std::string text =
      fmt::format("step {}/{}  loss {:.6g}  grad_norm {:.4g}  lr {:.3g}  {:.0f} tokens/s  ETA {}", metrics.step,
                  total_steps_, metrics.loss, metrics.grad_norm, metrics.lr, metrics.tokens_per_s, duration(eta_s));
  if (terminal_) {
    // \033[K wipes what a longer line before left behind.
    fmt::print(stderr, "\r{}{}\033[K", bar(metrics.step, total_steps_), text);
    bar_open_ = true;
  } else {
    fmt::print(stderr, "{}\n", text);
  }
  std::fflush(stderr);
}

std::string table_text(const std::string& title, const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t name_width = 0, value_width = 0;
  for (const auto& [name, value] : rows) {
    name_width = std::max(name_width, width_of(name));
    value_width = std::max(value_width, width_of(value));
  }
  value_width = std::max(value_width, width_of(title) > name_width + 2 ? width_of(title) - name_width - 2 : 0);
  const std::string rule = "+" + std::string(name_width + value_width + 4, '-') + "+\n";
  const auto padded = [](const std::string& text, size_t width) {
    return text + std::string(width - std::min(width, width_of(text)), ' ');
  };
  std::string text = rule + fmt::format("| {} |\n", padded(title, name_width + value_width + 2)) + rule;
  for (const auto& [name, value] : rows) {
    text += fmt::format("| {}  {} |\n", padded(name, name_width), padded(value, value_width));
  }
  return text + rule;
}

void print_table(const std::string& title, const std::vector<std::pair<std::string, std::string>>& rows) {
  fmt::print(stderr, "{}", table_text(title, rows));
  std::fflush(stderr);
}

}  // namespace ringfold
