#include "ringfold/mesh/exchange_name.h"

#include <fmt/format.h>

namespace ringfold {
namespace {

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kRecompute:
      return "recompute";
    case Phase::kBackward:
      return "backward";
    case Phase::kMerge:
      return "merge";
  }
  return "unknown phase";
}

}  // namespace

std::string exchange_name(const ExchangeKey& key) {
  if (!key.what.empty()) {
    return key.step > 0 ? fmt::format("{} (step {})", key.what, key.step) : std::string(key.what);
  }
  return fmt::format("a context-parallel exchange ({}, layer {}, micro-step {}, step {})", phase_name(key.phase),
                     key.layer, key.micro_step, key.step);
}

}  // namespace ringfold
