#include "ringfold/models/common/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "ringfold/base/outside_text.h"
#include "ringfold/models/common/file_io.h"

namespace ringfold {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr int kDeepestNesting = 32;
constexpr const char* kDamagedHint = "the file is damaged or not a safetensors file; copy it again";

// Where the text stands, for errors.
struct Place {
  const std::string& path;

  [[noreturn]] void fail(const std::string& what, const std::string& got, const std::string& expected,
                         const std::string& hint) const {
    fail_input("safetensors", path, what, got, expected, hint);
  }
};

// JSON for a message: a damaged header may hold any amount of it.
std::string brief(const Json& json) {
  return printable(json.dump());
}

std::string tensor_called(const std::string& name) {
  return fmt::format("tensor '{}'", printable(name));
}

// Names given twice are an error (a plain JSON parser would keep the last one in silence).
Json parse_object(const Place& place, std::string_view text) {
  if (nested_deeper_than(text, kDeepestNesting)) {
    place.fail("header", fmt::format("JSON nested deeper than {} levels", kDeepestNesting), "a JSON object",
               kDamagedHint);
  }
  std::set<std::string> names;
  const auto callback = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth == 1 && event == Json::parse_event_t::key && !names.insert(value.get<std::string>()).second) {
      place.fail(tensor_called(value.get<std::string>()), "two entries of that name", "one", kDamagedHint);
    }
    return true;
  };
  Json header;
  try {
    header = Json::parse(text, callback);
  } catch (const Json::exception& error) {
    place.fail("header", printable(error.what(), 200), "a JSON object", kDamagedHint);
  }
  if (!header.is_object()) place.fail("header", header.type_name(), "a JSON object", kDamagedHint);
  return header;
}

const SafetensorsDtype* find_dtype(std::string_view name) {
  const auto* known = std::find_if(std::begin(kSafetensorsDtypes), std::end(kSafetensorsDtypes),
                                   [name](const SafetensorsDtype& dtype) { return dtype.name == name; });
  return known == std::end(kSafetensorsDtypes) ? nullptr : known;
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

SafetensorsEntry read_entry(const Place& place, const std::string& name, const Json& json, uint64_t data_bytes) {
  const std::string what = tensor_called(name);
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") || !json.contains("data_offsets")) {
    place.fail(what, brief(json), "an object with dtype, shape and data_offsets", kDamagedHint);
  }
  SafetensorsEntry entry;
  entry.name = name;
  const Json& dtype = json["dtype"];
  const SafetensorsDtype* known = dtype.is_string() ? find_dtype(dtype.get_ref<const std::string&>()) : nullptr;
  if (known == nullptr) {
    place.fail(what + " dtype", brief(dtype), "F64, F32, F16, BF16, I64, I32, I16, I8, U8 or BOOL",
               "convert the weights to one of these types");
  }
  entry.dtype = known->name;
  const auto is_count = [](const Json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
  };
  const Json& shape = json["shape"];
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), is_count)) {
    place.fail(what + " shape", brief(shape), "a list of non-negative integers", kDamagedHint);
  }
  entry.shape = shape.get<std::vector<int64_t>>();
  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !std::all_of(offsets.begin(), offsets.end(), is_count)) {
    place.fail(what + " data_offsets", brief(offsets), "two non-negative integers", kDamagedHint);
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > data_bytes) {
    place.fail(what + " data_offsets", brief(offsets),
               fmt::format("begin <= end <= {} (bytes of data in the file)", data_bytes),
               "the file is cut off or damaged; copy it again");
  }
  const std::optional<uint64_t> bytes = tensor_bytes(entry.shape, known->bytes);
  if (!bytes || *bytes != entry.end - entry.begin) {
    place.fail(what, fmt::format("{} bytes at data_offsets {}", entry.end - entry.begin, brief(offsets)),
               bytes ? fmt::format("{} for {} of shape {}", *bytes, known->name, brief(shape))
                     : fmt::format("a shape whose size fits 63 bits, not {}", brief(shape)),
               kDamagedHint);
  }
  return entry;
}

// The data section must be covered exactly once: no overlap, no hole, nothing behind the last tensor.
void check_cover(const Place& place, std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t at = 0;
  std::string previous = "the start of the data";
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != at) {
      place.fail(tensor_called(entry.name) + " data_offsets",
                 fmt::format("begin {} ({})", entry.begin, entry.begin < at ? "an overlap" : "a hole"),
                 fmt::format("{}, where {} ends", at, previous), kDamagedHint);
    }
    at = entry.end;
    previous = "'" + printable(entry.name) + "'";
  }
  if (at != data_bytes) {
    place.fail("data", fmt::format("{} trailing bytes behind {}", data_bytes - at, previous), "none", kDamagedHint);
  }
}

void check_metadata(const Place& place, const Json& metadata) {
  const auto is_text = [](const Json& value) { return value.is_string(); };
  if (!metadata.is_object() || !std::all_of(metadata.begin(), metadata.end(), is_text)) {
    place.fail("__metadata__", brief(metadata), "an object of strings", kDamagedHint);
  }
}

}  // namespace

uint64_t safetensors_header_bytes(const std::string& path, const void* first_8_bytes, uint64_t file_bytes) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, first_8_bytes, sizeof header_bytes);
  const uint64_t limit = std::min(kMaxHeaderBytes, file_bytes - sizeof header_bytes);
  if (header_bytes > limit) {
    Place{path}.fail("header length", fmt::format("{} bytes", header_bytes),
                     fmt::format("at most {} (file of {} bytes)", limit, file_bytes), kDamagedHint);
  }
  return header_bytes;
}

std::vector<SafetensorsEntry> parse_safetensors_header(const std::string& path, std::string_view header,
                                                       uint64_t data_bytes) {
  const Place place{path};
  const Json parsed = parse_object(place, header);
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, json] : parsed.items()) {
    if (name == "__metadata__") {
      check_metadata(place, json);
    } else {
      entries.push_back(read_entry(place, name, json, data_bytes));
    }
  }
  check_cover(place, entries, data_bytes);
  return entries;
}

std::map<std::string, std::string> parse_safetensors_index(const std::string& path, std::string_view text) {
  const Place place{path};
  const Json parsed = parse_object(place, text);
  if (!parsed.contains("weight_map") || !parsed["weight_map"].is_object()) {
    place.fail("weight_map", "nothing", "an object of tensor name -> file", kDamagedHint);
  }
  std::map<std::string, std::string> map;
  for (const auto& [name, shard] : parsed["weight_map"].items()) {
    const std::string file = shard.is_string() ? shard.get<std::string>() : "";
    // A plain name: an index may not reach outside its own folder.
    if (file.empty() || file == ".." || file == "." || file.find('/') != std::string::npos) {
      place.fail(fmt::format("weight_map entry '{}'", printable(name)), brief(shard), "a file name inside the folder",
                 kDamagedHint);
    }
    map[name] = file;
  }
  return map;
}

}  // namespace ringfold
