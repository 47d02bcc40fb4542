#include "ringfold/mesh/peer_failure.h"

#include <fmt/format.h>

namespace ringfold {

std::string LanePlace::name(LaneRank lane_rank) const {
  return fmt::format("rank {} (lane rank {})", world_ranks.at(lane_rank.value()).value(), lane_rank.value());
}

PeerError peer_failure(const LanePlace& place, std::string_view who, std::string_view operation,
                       std::chrono::duration<double> elapsed, std::string_view library_text) {
  const double limit_s = std::chrono::duration<double>(place.timeout).count();
  // The clock alone is not enough: a connection may close in the very last moment before the limit.
  const bool silent = elapsed.count() >= limit_s || library_text.find("imed out") != std::string_view::npos;
  const auto what = silent ? fmt::format("no answer from {}", who) : fmt::format("lost the connection to {}", who);
  const char* hint = silent ? "that rank is stuck, stopped or far slower than the others; see its last log lines, or "
                              "raise --comm-timeout-seconds if the wait is rightful"
                            : "that rank has ended; its own error is the cause";
  return PeerError(
      fmt::format("[mesh] {}: {} in {}: got nothing after {:.1f} s, expected an answer within {:g} s. "
                  "Hint: {}.",
                  place.name(place.self), what, operation, elapsed.count(), limit_s, hint));
}

}  // namespace ringfold
