// 64-bit FNV-1a, for comparing values between ranks (not for security).
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace ringfold {

class Hash {
 public:
  void add_bytes(const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < size; ++i) value_ = (value_ ^ bytes[i]) * 0x100000001b3ULL;
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void add(T value) { add_bytes(&value, sizeof value); }
  void add(std::string_view text) {
    add(text.size());
    add_bytes(text.data(), text.size());
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void add(std::span<const T> values) {
    add(values.size());
    add_bytes(values.data(), values.size_bytes());
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace ringfold
