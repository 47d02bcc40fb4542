// The types and names that reader and writer of safetensors files share.
#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <string_view>

#include "ringfold/models/common/safetensors_header.h"

namespace ringfold {

struct DtypeName {
  std::string_view name;
  at::ScalarType type;
};

inline constexpr DtypeName kDtypeNames[] = {
    {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf}, {"BF16", at::kBFloat16}, {"I64", at::kLong},
    {"I32", at::kInt},    {"I16", at::kShort}, {"I8", at::kChar},  {"U8", at::kByte},       {"BOOL", at::kBool},
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

static_assert(std::all_of(std::begin(kSafetensorsDtypes), std::end(kSafetensorsDtypes),
                          [](const SafetensorsDtype& dtype) { return find_dtype(dtype.name) != nullptr; }));

inline constexpr const char* kWholeFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

}  // namespace ringfold
