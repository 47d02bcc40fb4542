#include "ringfold/report/cut_records.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

namespace fs = std::filesystem;

void cut(const std::string& path, uint64_t bytes) {
  std::error_code error;
  if (fs::file_size(path, error) == bytes && !error) return;
  fs::resize_file(path, bytes, error);
  if (!error) return;
  throw RunError(fmt::format(
      "[report] {}: cannot cut the records after the step that the run resumes from: {}. Hint: check its permissions",
      path, error.message()));
}

// Of one line of a .jsonl file; none when it is not a whole record.
std::optional<int64_t> number_of_line(const std::string& line, const std::string& key) {
  const auto record = nlohmann::json::parse(line, nullptr, false);
  if (!record.is_object() || !record.contains(key) || !record[key].is_number_integer()) return std::nullopt;
  return record[key].get<int64_t>();
}

// Of an event's message, as event_file.cpp writes them: wall time (key and 8 bytes), then the step as field 2. The
// version event has none: 0.
int64_t step_of_event(const std::string& message) {
  constexpr size_t kStepAt = 9;
  constexpr char kStepKey = 0x10;
  if (message.size() <= kStepAt || message[kStepAt] != kStepKey) return 0;
  uint64_t step = 0;
  for (size_t i = kStepAt + 1, shift = 0; i < message.size() && shift < 64; ++i, shift += 7) {
    step |= static_cast<uint64_t>(message[i] & 0x7F) << shift;
    if ((message[i] & 0x80) == 0) break;
  }
  return static_cast<int64_t>(step);
}

bool is_of_rollout(const std::string& message) {
  return message.find("rollout/reward_mean") != std::string::npos;  // event_file.h: a tag of each
}

void cut_event_file(const std::string& path, int64_t step, int64_t rollout) {
  std::ifstream file(path, std::ios::binary);
  const uint64_t size = fs::file_size(path);
  uint64_t kept = 0;
  // u64 length, u32 CRC, message, u32 CRC: event_file.h.
  constexpr uint64_t kFrameBytes = 16;
  while (kept + kFrameBytes <= size) {
    char head[12];
    file.read(head, sizeof head);
    uint64_t length = 0;
    std::memcpy(&length, head, sizeof length);
    if (length > size - kept - kFrameBytes) break;
    std::string message(length, '\0');
    file.read(message.data(), static_cast<std::streamsize>(length));
    file.ignore(4);
    if (!file || step_of_event(message) > (is_of_rollout(message) ? rollout : step)) break;
    kept += kFrameBytes + length;
  }
  cut(path, kept);
}

}  // namespace

void cut_records_after(const std::string& path, int64_t last, const std::string& key) {
  if (!fs::is_regular_file(path)) return;  // not there, or a pipe or device, which has no past
  std::ifstream file(path, std::ios::binary);
  uint64_t kept = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const std::optional<int64_t> at = number_of_line(line, key);
    if (!at || *at > last) break;
    kept += line.size() + 1;
  }
  cut(path, kept);
}

void cut_events_after(const std::string& folder, int64_t step, int64_t rollout) {
  if (!fs::is_directory(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      cut_event_file(entry.path().string(), step, rollout);
    }
  }
}

}  // namespace ringfold
