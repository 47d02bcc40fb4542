#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "ringfold/base/error.h"
#include "ringfold/models/common/file_io.h"
#include "ringfold/models/common/safetensors.h"
#include "ringfold/models/common/safetensors_format.h"

namespace ringfold {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

using Json = nlohmann::json;

struct Entry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // in the data section
};

constexpr const char* kDamagedHint = "the file is damaged or not a safetensors file; copy it again";

// JSON for a message: a damaged header may hold any amount of it.
std::string brief(const Json& json) {
  constexpr size_t kShown = 120;
  const std::string text = json.dump();
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

// Parses the header; names given twice are an error (a plain JSON parser would keep the last one in silence).
Json parse_header(const InputFile& file, const std::string& text) {
  std::set<std::string> names;
  const auto callback = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth == 1 && event == Json::parse_event_t::key && !names.insert(value.get<std::string>()).second) {
      file.fail(fmt::format("tensor '{}'", value.get<std::string>()), "two entries of that name", "one", kDamagedHint);
    }
    return true;
  };
  Json header;
  try {
    header = Json::parse(text, callback);
  } catch (const Json::exception& error) {
    file.fail("header", error.what(), "a JSON object", kDamagedHint);
  }
  if (!header.is_object()) file.fail("header", header.type_name(), "a JSON object", kDamagedHint);
  return header;
}

// Bytes of a tensor; nothing when the product does not fit (zero-sized dims count as one, so that strides fit too).
std::optional<uint64_t> tensor_bytes(const std::vector<int64_t>& shape, uint64_t item_bytes) {
  uint64_t nonzero = item_bytes;
  bool empty = false;
  for (const int64_t dim : shape) {
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(nonzero, static_cast<uint64_t>(dim), &nonzero) ||
               nonzero > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return std::nullopt;
    }
  }
  return empty ? 0 : nonzero;
}

Entry read_entry(const InputFile& file, const std::string& name, const Json& json, uint64_t data_bytes) {
  const std::string what = fmt::format("tensor '{}'", name);
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") || !json.contains("data_offsets")) {
    file.fail(what, brief(json), "an object with dtype, shape and data_offsets", kDamagedHint);
  }
  Entry entry{.name = name, .shape = {}};
  const Json& dtype = json["dtype"];
  const DtypeName* known = dtype.is_string() ? find_dtype(dtype.get<std::string>()) : nullptr;
  if (known == nullptr) {
    file.fail(what + " dtype", brief(dtype), "F64, F32, F16, BF16, I64, I32, I16, I8, U8 or BOOL",
              "convert the weights to one of these types");
  }
  entry.dtype = known->type;
  const auto is_count = [](const Json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
  };
  const Json& shape = json["shape"];
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), is_count)) {
    file.fail(what + " shape", brief(shape), "a list of non-negative integers", kDamagedHint);
  }
  entry.shape = shape.get<std::vector<int64_t>>();
  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !std::all_of(offsets.begin(), offsets.end(), is_count)) {
    file.fail(what + " data_offsets", brief(offsets), "two non-negative integers", kDamagedHint);
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > data_bytes) {
    file.fail(what + " data_offsets", brief(offsets),
              fmt::format("begin <= end <= {} (bytes of data in the file)", data_bytes),
              "the file is cut off or damaged; copy it again");
  }
  const std::optional<uint64_t> bytes = tensor_bytes(entry.shape, known->bytes);
  if (!bytes || *bytes != entry.end - entry.begin) {
    file.fail(what, fmt::format("{} bytes at data_offsets {}", entry.end - entry.begin, brief(offsets)),
              bytes ? fmt::format("{} for {} of shape {}", *bytes, known->name, brief(shape))
                    : fmt::format("a shape whose size fits 63 bits, not {}", brief(shape)),
              kDamagedHint);
  }
  return entry;
}

// The data section must be covered exactly once: no overlap, no hole, nothing behind the last tensor.
void check_cover(const InputFile& file, std::vector<Entry>& entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t at = 0;
  std::string previous = "the start of the data";
  for (const Entry& entry : entries) {
    if (entry.begin != at) {
      file.fail(fmt::format("tensor '{}' data_offsets", entry.name),
                fmt::format("begin {} ({})", entry.begin, entry.begin < at ? "an overlap" : "a hole"),
                fmt::format("{}, where {} ends", at, previous), kDamagedHint);
    }
    at = entry.end;
    previous = "'" + entry.name + "'";
  }
  if (at != data_bytes) {
    file.fail("data", fmt::format("{} trailing bytes behind {}", data_bytes - at, previous), "none", kDamagedHint);
  }
}

void check_metadata(const InputFile& file, const Json& metadata) {
  const auto is_text = [](const Json& value) { return value.is_string(); };
  if (!metadata.is_object() || !std::all_of(metadata.begin(), metadata.end(), is_text)) {
    file.fail("__metadata__", brief(metadata), "an object of strings", kDamagedHint);
  }
}

at::Tensor read_tensor(const InputFile& file, const Entry& entry, uint64_t data_begin) {
  at::Tensor value = at::empty(entry.shape, at::TensorOptions(entry.dtype));
  file.read_at(data_begin + entry.begin, value.data_ptr(), entry.end - entry.begin);
  if (entry.dtype == at::kBool) {
    const auto* bytes = static_cast<const uint8_t*>(value.data_ptr());
    if (std::any_of(bytes, bytes + value.numel(), [](uint8_t byte) { return byte > 1; })) {
      file.fail(fmt::format("tensor '{}'", entry.name), "a BOOL that is neither 0 nor 1", "0 or 1", kDamagedHint);
    }
  }
  return value;
}

std::map<std::string, std::string> read_weight_map(const InputFile& index) {
  std::string text(index.size_bytes(), '\0');
  index.read_at(0, text.data(), text.size());
  const Json parsed = parse_header(index, text);
  if (!parsed.contains("weight_map") || !parsed["weight_map"].is_object()) {
    index.fail("weight_map", "nothing", "an object of tensor name -> file", kDamagedHint);
  }
  std::map<std::string, std::string> map;
  for (const auto& [name, shard] : parsed["weight_map"].items()) {
    const std::string file = shard.is_string() ? shard.get<std::string>() : "";
    // A plain name: an index may not reach outside its own folder.
    if (file.empty() || file == ".." || file == "." || file.find('/') != std::string::npos) {
      index.fail(fmt::format("weight_map entry '{}'", name), brief(shard), "a file name inside the folder",
                 kDamagedHint);
    }
    map[name] = file;
  }
  return map;
}

}  // namespace

std::map<std::string, at::Tensor> read_safetensors(const std::string& path) {
  const InputFile file("safetensors", path);
  if (file.size_bytes() < 8) {
    file.fail("file size", fmt::format("{} bytes", file.size_bytes()), "at least 8", kDamagedHint);
  }
  uint64_t header_bytes = 0;
  file.read_at(0, &header_bytes, 8);
  if (header_bytes > kMaxHeaderBytes || header_bytes > file.size_bytes() - 8) {
    file.fail("header length", fmt::format("{} bytes", header_bytes),
              fmt::format("at most {} (file of {} bytes)", std::min(kMaxHeaderBytes, file.size_bytes() - 8),
                          file.size_bytes()),
              kDamagedHint);
  }
  std::string text(header_bytes, '\0');
  file.read_at(8, text.data(), header_bytes);
  const Json header = parse_header(file, text);

  const uint64_t data_begin = 8 + header_bytes;
  const uint64_t data_bytes = file.size_bytes() - data_begin;
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") {
      check_metadata(file, json);
    } else {
      entries.push_back(read_entry(file, name, json, data_bytes));
    }
  }
  check_cover(file, entries, data_bytes);
  std::map<std::string, at::Tensor> tensors;
  for (const Entry& entry : entries) tensors[entry.name] = read_tensor(file, entry, data_begin);
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
  const std::map<std::string, std::string> weight_map = read_weight_map(index);
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
