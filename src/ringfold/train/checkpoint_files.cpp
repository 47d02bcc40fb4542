#include "ringfold/train/checkpoint_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ringfold/base/error.h"
#include "ringfold/models/common/file_io.h"

namespace ringfold {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kComponent = "checkpoint";
constexpr const char* kStepPrefix = "step_";
constexpr const char* kUnfinishedSuffix = ".tmp";
constexpr const char* kDamagedHint =
    "the checkpoint is damaged; --resume auto takes the one before, --resume PATH any other one";

[[noreturn]] void fail_write(const std::string& path, const std::string& operation, const std::string& got) {
  throw RunError(fmt::format("[{}] {}: {}: got {}, expected success. Hint: check the free space and the permissions",
                             kComponent, path, operation, got));
}

std::string checkpoint_path(const std::string& folder, int64_t step) {
  return fmt::format("{}/{}{}", folder, kStepPrefix, step);
}

std::string unfinished_path(const std::string& folder, int64_t step) {
  return checkpoint_path(folder, step) + kUnfinishedSuffix;
}

void rename_folder(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail_write(from, "rename to " + to, error.message());
}

void remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_write(path, "remove", error.message());
}

void flush_path(const std::string& path, int flags) {
  const int handle = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  const bool flushed = handle >= 0 && ::fsync(handle) == 0;
  const int reason = errno;
  if (handle >= 0) ::close(handle);
  if (!flushed) fail_write(path, "fsync", std::strerror(reason));
}

uint64_t crc32_of(const InputFile& file) {
  constexpr uint64_t kPieceBytes = uint64_t{1} << 22;
  std::vector<unsigned char> piece(std::min(kPieceBytes, file.size_bytes()));
  uLong crc = ::crc32(0, nullptr, 0);
  for (uint64_t at = 0; at < file.size_bytes(); at += piece.size()) {
    const uint64_t bytes = std::min<uint64_t>(piece.size(), file.size_bytes() - at);
    file.read_at(at, piece.data(), bytes);
    crc = ::crc32(crc, piece.data(), static_cast<uInt>(bytes));
  }
  return crc;
}

// {"schema":1,"files":[{"name":"hf/config.json","bytes":..,"crc32":"0123abcd"},..]}, by name.
std::string complete_mark(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) names.push_back(fs::relative(entry.path(), path).string());
  }
  std::sort(names.begin(), names.end());
  Json files = Json::array();
  for (const std::string& name : names) {
    const InputFile file(kComponent, path + "/" + name);
    files.push_back({{"name", name}, {"bytes", file.size_bytes()}, {"crc32", fmt::format("{:08x}", crc32_of(file))}});
  }
  return Json{{"schema", 1}, {"files", files}}.dump(1) + "\n";
}

struct ListedFile {
  std::string name;
  uint64_t bytes = 0;
  std::string crc32;
};

std::vector<ListedFile> read_mark(const std::string& path) {
  const InputFile mark(kComponent, path + "/" + kCompleteMark);
  std::string text(mark.size_bytes(), '\0');
  mark.read_at(0, text.data(), text.size());
  std::vector<ListedFile> files;
  try {
    const Json json = Json::parse(text);
    for (const Json& file : json.at("files")) {
      files.push_back(
          {file.at("name").get<std::string>(), file.at("bytes").get<uint64_t>(), file.at("crc32").get<std::string>()});
    }
  } catch (const Json::exception&) {
    mark.fail("mark of completion", "something else", "a list of files with sizes and checksums", kDamagedHint);
  }
  return files;
}

}  // namespace

void flush_file(const std::string& path) {
  if (fs::exists(path)) flush_path(path, 0);
}

std::vector<CheckpointFolder> list_checkpoints(const std::string& folder) {
  std::vector<CheckpointFolder> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kStepPrefix) || !entry.is_directory()) continue;
    const char *begin = name.data() + std::strlen(kStepPrefix), *end = name.data() + name.size();
    int64_t step = 0;
    const auto [rest, failure] = std::from_chars(begin, end, step);
    if (failure == std::errc() && rest == end && step >= 0) found.push_back({step, entry.path().string()});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return found;
}

void verify_checkpoint(const std::string& path) {
  if (!fs::exists(path + "/" + kCompleteMark)) {
    throw DataError(
        fmt::format("[{}] {}/{}: got no such file, expected it as the mark of a complete checkpoint. Hint: "
                    "{}",
                    kComponent, path, kCompleteMark, kDamagedHint));
  }
  for (const ListedFile& listed : read_mark(path)) {
    const InputFile file(kComponent, path + "/" + listed.name);
    if (file.size_bytes() != listed.bytes) {
      file.fail("size", fmt::format("{} bytes", file.size_bytes()), fmt::format("{} bytes", listed.bytes),
                kDamagedHint);
    }
    const std::string crc32 = fmt::format("{:08x}", crc32_of(file));
    if (crc32 != listed.crc32) file.fail("checksum (CRC-32)", crc32, listed.crc32, kDamagedHint);
  }
}

std::string write_checkpoint_folder(const std::string& folder, int64_t step,
                                    const std::function<void(const std::string& aside)>& fill,
                                    const CheckpointStage& stage) {
  const auto reach = [&](std::string_view name) {
    if (stage) stage(name);
  };
  const std::string aside = unfinished_path(folder, step), path = checkpoint_path(folder, step);
  try {
    remove_folder(aside);
    std::error_code error;
    fs::create_directories(aside, error);
    if (error) fail_write(aside, "create folder", error.message());
    fill(aside);
    reach("files");
    write_text_file(kComponent, aside + "/" + kCompleteMark, complete_mark(aside));
    reach("complete");
    rename_folder(aside, path);
    reach("rename");
    // The rename is durable only once the folder around it is on the disk.
    flush_path(folder, O_DIRECTORY);
  } catch (...) {
    std::error_code ignored;  // a disk that is full is better with it gone, but the failure is what is told
    fs::remove_all(aside, ignored);
    throw;
  }
  return path;
}

void keep_newest_checkpoints(const std::string& folder, int64_t count) {
  if (count <= 0) return;
  int64_t complete = 0;
  for (const CheckpointFolder& found : list_checkpoints(folder)) {
    if (complete < count) {
      if (fs::exists(found.path + "/" + kCompleteMark)) ++complete;
      continue;
    }
    // Renamed first: a removal that is stopped half way leaves no half checkpoint.
    remove_folder(unfinished_path(folder, found.step));
    rename_folder(found.path, unfinished_path(folder, found.step));
    remove_folder(unfinished_path(folder, found.step));
  }
}

void remove_unfinished_checkpoints(const std::string& folder) {
  std::vector<std::string> unfinished;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kStepPrefix) && name.ends_with(kUnfinishedSuffix)) unfinished.push_back(entry.path().string());
  }
  for (const std::string& path : unfinished) remove_folder(path);
}

std::vector<int64_t> set_aside_later_checkpoints(const std::string& folder, int64_t step) {
  std::vector<int64_t> steps;
  for (const CheckpointFolder& found : list_checkpoints(folder)) {
    if (found.step <= step) continue;
    const std::string away = fmt::format("{}/set_aside_{}{}", folder, kStepPrefix, found.step);
    remove_folder(away);
    rename_folder(found.path, away);
    steps.push_back(found.step);
  }
  return steps;
}

}  // namespace ringfold
