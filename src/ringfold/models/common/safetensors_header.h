// What a safetensors file says about its tensors, and what an index says about its shards: text in, checked values out.
// Knows no torch, so that the parsers of outside bytes are fuzzed by themselves (tests/fuzz).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ringfold {

struct SafetensorsDtype {
  std::string_view name;
  uint64_t bytes;
};

inline constexpr SafetensorsDtype kSafetensorsDtypes[] = {
    {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
    {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1},
};

struct SafetensorsEntry {
  std::string name;
  std::string_view dtype;       // one of kSafetensorsDtypes
  std::vector<int64_t> shape;   // the bytes of the tensor fit 63 bits
  uint64_t begin = 0, end = 0;  // in the data section; end - begin is the size that dtype and shape give
};

// Number of header bytes, from the first 8 bytes of a file of `file_bytes`. DataError when they do not fit the file.
uint64_t safetensors_header_bytes(const std::string& path, const void* first_8_bytes, uint64_t file_bytes);

// The entries in the order of their data, which they cover exactly once. DataError names `path` and the tensor.
std::vector<SafetensorsEntry> parse_safetensors_header(const std::string& path, std::string_view header,
                                                       uint64_t data_bytes);

// model.safetensors.index.json: tensor name -> file name inside the folder. DataError names `path` and the entry.
std::map<std::string, std::string> parse_safetensors_index(const std::string& path, std::string_view text);

}  // namespace ringfold
