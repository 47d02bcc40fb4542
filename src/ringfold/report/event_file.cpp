#include "ringfold/report/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

constexpr std::array<uint32_t, 256> crc32c_table() {
  constexpr uint32_t kReflectedPolynomial = 0x82F63B78;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kReflectedPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

template <typename Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

// The three wire types of protobuf that an event needs.
enum class Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}

std::string key(uint64_t field, Wire wire) {
  return varint(field << 3 | static_cast<uint64_t>(wire));
}
std::string int64_field(uint64_t field, int64_t value) {
  return key(field, Wire::kVarint) + varint(static_cast<uint64_t>(value));
}
std::string double_field(uint64_t field, double value) {
  return key(field, Wire::kFixed64) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string float_field(uint64_t field, float value) {
  return key(field, Wire::kFixed32) + little_endian(std::bit_cast<uint32_t>(value));
}
std::string bytes_field(uint64_t field, std::string_view value) {
  return key(field, Wire::kBytes) + varint(value.size()) + std::string(value);
}

// Field numbers of event.proto and summary.proto.
constexpr uint64_t kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5;
constexpr uint64_t kSummaryValue = 1, kValueTag = 1, kValueSimpleValue = 2;

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc32c_table();
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return std::rotr(~crc, 15) + 0xA282EAD8;
}

std::string framed_record(std::string_view message) {
  const std::string length = little_endian(static_cast<uint64_t>(message.size()));
  return length + little_endian(masked_crc32c(length)) + std::string(message) + little_endian(masked_crc32c(message));
}

std::string version_event(double wall_time_s) {
  return double_field(kEventWallTime, wall_time_s) + bytes_field(kEventFileVersion, "brain.Event:2");
}

std::string scalars_event(double wall_time_s, int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    summary += bytes_field(kSummaryValue, bytes_field(kValueTag, scalar.tag) +
                                              float_field(kValueSimpleValue, static_cast<float>(scalar.value)));
  }
  return double_field(kEventWallTime, wall_time_s) + int64_field(kEventStep, step) +
         bytes_field(kEventSummary, summary);
}

EventFile::EventFile(const std::string& folder) {
  const double now = now_s();
  path_ = fmt::format("{}/events.out.tfevents.{:010}.{}.{}", folder, static_cast<int64_t>(now), host_name(), getpid());
  std::error_code ignored;  // the open below says what is wrong
  std::filesystem::create_directories(folder, ignored);
  file_.reset(std::fopen(path_.c_str(), "ab"));
  if (!file_) {
    throw RunError(fmt::format("[report] {}: cannot open for writing: {}. Hint: check --output-dir and its permissions",
                               path_, std::strerror(errno)));
  }
  write(version_event(now));
}

void EventFile::append(int64_t step, const std::vector<Scalar>& scalars) {
  write(scalars_event(now_s(), step, scalars));
}

void EventFile::write(const std::string& message) {
  const std::string record = framed_record(message);
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size() || std::fflush(file_.get()) != 0) {
    throw RunError(
        fmt::format("[report] {}: cannot write a record: {}. Hint: is the disk full?", path_, std::strerror(errno)));
  }
}

}  // namespace ringfold
