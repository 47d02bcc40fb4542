// What reader and writer of safetensors files share.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string_view>

namespace ringfold {

struct DtypeName {
  std::string_view name;
  at::ScalarType type;
  uint64_t bytes;
};

inline constexpr DtypeName kDtypeNames[] = {
    {"F64", at::kDouble, 8}, {"F32", at::kFloat, 4}, {"F16", at::kHalf, 2},  {"BF16", at::kBFloat16, 2},
    {"I64", at::kLong, 8},   {"I32", at::kInt, 4},   {"I16", at::kShort, 2}, {"I8", at::kChar, 1},
    {"U8", at::kByte, 1},    {"BOOL", at::kBool, 1},
};

constexpr const DtypeName* find_dtype(std::string_view name) {
  for (const DtypeName& known : kDtypeNames) {
    if (known.name == name) return &known;
  }
  return nullptr;
}
constexpr const DtypeName* find_dtype(at::ScalarType type) {
  for (const DtypeName& known : kDtypeNames) {
    if (known.type == type) return &known;
  }
  return nullptr;
}

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr const char* kWholeFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

}  // namespace ringfold
