// How the table of flags is written down (flags.cpp): a call a flag, with its kind, its bounds and its target.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "flag_values.h"
#include "flags.h"
#include "ringfold/base/error.h"

namespace ringfold {

inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Collects flags of one group for one set of commands.
class FlagTable {
 public:
  FlagTable& in(const std::string& group, unsigned commands) {
    group_ = group;
    commands_ = commands;
    return *this;
  }
  // The set of commands of the flags that follow.
  FlagTable& by(unsigned commands) {
    commands_ = commands;
    return *this;
  }

  FlagTable& toggle(const std::string& name, const std::string& help, bool& target, bool value = true) {
    return add(name, "", help, FlagKind::kSwitch, [&target, value](const std::string& text, const std::string& where) {
      target = parse_switch(text, where) == value;
    });
  }
  template <typename Int>
  FlagTable& integer(const std::string& name, const std::string& help, Int& target, int64_t low,
                     int64_t high = kNoLimit, bool* given = nullptr) {
    return add(name, "N", help, FlagKind::kInteger,
               [&target, low, high, given](const std::string& text, const std::string& where) {
                 target = static_cast<Int>(parse_integer(text, where, low, high));
                 if (given) *given = true;
               });
  }
  FlagTable& seed(const std::string& name, const std::string& help, uint64_t& target) {
    return add(name, "N", help, FlagKind::kInteger,
               [&target](const std::string& text, const std::string& where) { target = parse_seed(text, where); });
  }
  FlagTable& number(const std::string& name, const std::string& help, double& target, double low,
                    double high = std::numeric_limits<double>::infinity()) {
    return add(name, "X", fmt::format("{} [{}]", help, target), FlagKind::kNumber,
               [&target, low, high](const std::string& text, const std::string& where) {
                 target = parse_number(text, where, low, high);
               });
  }
  FlagTable& text(const std::string& name, const std::string& placeholder, const std::string& help, std::string& target,
                  FlagKind kind = FlagKind::kText) {
    return add(name, placeholder, help, kind,
               [&target](const std::string& value, const std::string& where) { target = parse_text(value, where); });
  }
  // `take` gets the index of the chosen name.
  FlagTable& choice(const std::string& name, const std::string& help, const Choices& choices,
                    const std::function<void(size_t)>& take) {
    return add(name, fmt::format("{}", fmt::join(choices.names, "|")), help, FlagKind::kText,
               [choices, take](const std::string& value, const std::string& where) {
                 take(parse_choice(value, where, choices));
               });
  }
  FlagTable& choice(const std::string& name, const std::string& help, const Choices& choices, std::string& target) {
    return choice(name, fmt::format("{} [{}]", help, target), choices,
                  [&target, choices](size_t index) { target = choices.names[index]; });
  }
  FlagTable& list(const std::string& name, const std::string& placeholder, const std::string& help,
                  const std::function<void(const std::string&, const std::string&)>& set) {
    return add(name, placeholder, help, FlagKind::kList, set);
  }
  FlagTable& not_built(const std::string& name, const std::string& instead) {
    add(name, "X", "", FlagKind::kText, [instead](const std::string&, const std::string& where) {
      throw UsageError(fmt::format("{}: not built yet. Hint: {}", where, instead));
    });
    flags_.back().hidden = true;
    return *this;
  }

  std::vector<Flag> take() { return std::move(flags_); }

 private:
  FlagTable& add(const std::string& name, const std::string& placeholder, const std::string& help, FlagKind kind,
                 std::function<void(const std::string&, const std::string&)> set) {
    flags_.push_back({name, placeholder, help, group_, commands_, kind, std::move(set), false});
    return *this;
  }

  std::vector<Flag> flags_;
  std::string group_;
  unsigned commands_ = 0;
};

}  // namespace ringfold
