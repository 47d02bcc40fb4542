#include "ringfold/mesh/device_wait.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringfold {
namespace {

constexpr size_t kTold = 4;

}  // namespace

DeviceWait::DeviceWait(std::vector<Rank> others, std::string operation, Clock::time_point now)
    : others_(std::move(others)), operation_(std::move(operation)), began_at_(now), moved_at_(now), reader_(now) {}

void DeviceWait::look(c10d::Store& store) {
  for (const Rank rank : others_) {
    if (reader_.look(store, rank).moved) moved_at_ = Clock::now();
  }
}

Monitor::Finding DeviceWait::examine(Clock::time_point now, std::chrono::milliseconds interval) const {
  using Cause = Monitor::Cause;
  if (reader_.seen().empty()) return {Cause::kUnknown, others_.front(), ""};
  const auto seen = [&](Rank rank) -> const BeatReader::Seen& { return reader_.seen().at(rank.value()); };
  for (const Rank rank : others_) {
    if (!seen(rank).alive(now, interval)) {
      return {Cause::kSilent, rank, describe_seen(rank, seen(rank), interval)};
    }
  }
  // Of those that wait for nobody, the one that has been longest where it is.
  const Rank* stuck = nullptr;
  for (const Rank& rank : others_) {
    const bool waits = seen(rank).beat.waiting_for != Beat::kForNobody;
    if (!waits && (stuck == nullptr || seen(rank).moved_at < seen(*stuck).moved_at)) stuck = &rank;
  }
  if (stuck != nullptr) return {Cause::kStuck, *stuck, describe_seen(*stuck, seen(*stuck), interval)};
  std::string text;
  for (size_t i = 0; i < std::min(others_.size(), kTold); ++i) {
    text += fmt::format("{}rank {} waits in {}", i == 0 ? "" : "; ", others_[i].value(), seen(others_[i]).beat.doing);
  }
  return {Cause::kAllWait, others_.front(), text};
}

}  // namespace ringfold
