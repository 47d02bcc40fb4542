// Powers of two and rounding, the arithmetic of CP sizes.
#pragma once

#include <bit>
#include <cstdint>

namespace ringfold {

constexpr int64_t ceil_div(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}
constexpr bool is_power_of_2(int64_t value) {
  return value > 0 && std::has_single_bit(static_cast<uint64_t>(value));
}
// The largest one that is at most `value`, which is positive.
constexpr int64_t previous_power_of_2(int64_t value) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(value)));
}
constexpr int64_t next_power_of_2(int64_t value) {
  return value <= 1 ? 1 : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(value)));
}

}  // namespace ringfold
