#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ringfold/base/error.h"
#include "ringfold/models/common/file_io.h"
#include "ringfold/models/common/safetensors.h"
#include "ringfold/models/common/safetensors_format.h"

namespace ringfold {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kComponent = "safetensors";

void remove_file(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) {
    throw RunError(fmt::format("[{}] {}: remove: got {}, expected success. Hint: check the permissions of its folder",
                               kComponent, path, error.message()));
  }
}

int64_t bytes_of(const NamedTensor& tensor) {
  return tensor.value.numel() * static_cast<int64_t>(tensor.value.element_size());
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  // Widest types first, so that every tensor is aligned to its own type.
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return a->value.element_size() > b->value.element_size();
  });

  Json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t at = 0;
  for (const NamedTensor* tensor : order) {
    const DtypeName* dtype = find_dtype(tensor->value.scalar_type());
    RINGFOLD_ASSERT(dtype != nullptr, "no safetensors type for tensor " + tensor->name);
    RINGFOLD_ASSERT(!header.contains(tensor->name), "two tensors of one name: " + tensor->name);
    const int64_t end = at + bytes_of(*tensor);
    header[tensor->name] = {
        {"dtype", dtype->name}, {"shape", tensor->value.sizes().vec()}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');

  OutputFile out(kComponent, path);
  const uint64_t header_bytes = text.size();
  out.write(&header_bytes, sizeof header_bytes);
  out.write(text.data(), text.size());
  for (const NamedTensor* tensor : order) {
    const at::Tensor value = tensor->value.detach().cpu().contiguous();
    out.write(value.data_ptr(), static_cast<uint64_t>(bytes_of(*tensor)));
  }
  out.commit();
}

void write_safetensors_folder(const std::string& folder, const std::vector<NamedTensor>& tensors,
                              int64_t max_shard_bytes) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw RunError(fmt::format("[{}] {}: create folder: got {}, expected success. Hint: check the path and permissions",
                               kComponent, folder, error.message()));
  }
  std::vector<std::vector<NamedTensor>> shards(1);
  int64_t total_bytes = 0, shard_bytes = 0;
  for (const NamedTensor& tensor : tensors) {
    if (!shards.back().empty() && shard_bytes + bytes_of(tensor) > max_shard_bytes) {
      shards.emplace_back();
      shard_bytes = 0;
    }
    shards.back().push_back(tensor);
    shard_bytes += bytes_of(tensor);
    total_bytes += bytes_of(tensor);
  }
  const std::string whole = folder + "/" + kWholeFile, index_file = folder + "/" + kIndexFile;
  if (shards.size() == 1) {
    write_safetensors(whole, tensors);
    remove_file(index_file);
    return;
  }
  Json weight_map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_safetensors(folder + "/" + name, shards[i]);
    for (const NamedTensor& tensor : shards[i]) weight_map[tensor.name] = name;
  }
  const Json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
  write_text_file(kComponent, index_file, index.dump(2) + "\n");
  // Readers prefer the whole file: one left from an earlier export would hide the shards.
  remove_file(whole);
}

}  // namespace ringfold
