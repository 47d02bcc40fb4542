#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <set>

#include "ringfold/base/error.h"
#include "ringfold/models/common/file_io.h"
#include "ringfold/models/common/safetensors.h"
#include "ringfold/models/common/safetensors_format.h"
#include "ringfold/models/common/safetensors_header.h"

namespace ringfold {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr const char* kDamagedHint = "the file is damaged or not a safetensors file; copy it again";

at::Tensor read_tensor(const InputFile& file, const SafetensorsEntry& entry, uint64_t data_begin) {
  const at::ScalarType type = find_dtype(entry.dtype)->type;
  at::Tensor value = at::empty(entry.shape, at::TensorOptions(type));
  file.read_at(data_begin + entry.begin, value.data_ptr(), entry.end - entry.begin);
  if (type == at::kBool) {
    const auto* bytes = static_cast<const uint8_t*>(value.data_ptr());
    if (std::any_of(bytes, bytes + value.numel(), [](uint8_t byte) { return byte > 1; })) {
      file.fail(fmt::format("tensor '{}'", entry.name), "a BOOL that is neither 0 nor 1", "0 or 1", kDamagedHint);
    }
  }
  return value;
}

std::string read_text(const InputFile& file, uint64_t offset, uint64_t bytes) {
  std::string text(bytes, '\0');
  file.read_at(offset, text.data(), bytes);
  return text;
}

}  // namespace

std::map<std::string, at::Tensor> read_safetensors(const std::string& path) {
  const InputFile file("safetensors", path);
  if (file.size_bytes() < 8) {
    file.fail("file size", fmt::format("{} bytes", file.size_bytes()), "at least 8", kDamagedHint);
  }
  const uint64_t header_bytes = safetensors_header_bytes(path, read_text(file, 0, 8).data(), file.size_bytes());
  const uint64_t data_begin = 8 + header_bytes;
  const std::vector<SafetensorsEntry> entries =
      parse_safetensors_header(path, read_text(file, 8, header_bytes), file.size_bytes() - data_begin);
  std::map<std::string, at::Tensor> tensors;
  for (const SafetensorsEntry& entry : entries) tensors[entry.name] = read_tensor(file, entry, data_begin);
  return tensors;
}

std::map<std::string, at::Tensor> read_safetensors_folder(const std::string& folder) {
  const std::string whole = folder + "/" + kWholeFile, index_file = folder + "/" + kIndexFile;
  if (std::filesystem::exists(whole)) return read_safetensors(whole);
  if (!std::filesystem::exists(index_file)) {
    throw DataError(
        fmt::format("[safetensors] {}: got a folder without weights, expected {} or {}. Hint: give a "
                    "Hugging Face model folder with safetensors weights",
                    folder, kWholeFile, kIndexFile));
  }
  const InputFile index("safetensors", index_file);
  const std::map<std::string, std::string> weight_map =
      parse_safetensors_index(index_file, read_text(index, 0, index.size_bytes()));
  std::set<std::string> shards;
  for (const auto& [name, shard] : weight_map) shards.insert(shard);
  std::map<std::string, at::Tensor> tensors;
  for (const std::string& shard : shards) {
    for (auto& [name, value] : read_safetensors(folder + "/" + shard)) {
      const auto listed = weight_map.find(name);
      if (listed == weight_map.end() || listed->second != shard) {
        index.fail(fmt::format("tensor '{}'", name), fmt::format("it in shard {}", shard),
                   listed == weight_map.end() ? "it listed in weight_map" : "it in " + listed->second,
                   "index and shards do not belong together; copy the folder again");
      }
      tensors[name] = std::move(value);
    }
  }
  for (const auto& [name, shard] : weight_map) {
    if (!tensors.contains(name)) {
      index.fail(fmt::format("tensor '{}'", name), "nothing", fmt::format("it in shard {}", shard),
                 "index and shards do not belong together; copy the folder again");
    }
  }
  return tensors;
}

}  // namespace ringfold
