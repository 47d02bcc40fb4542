#include "ringfold/mesh/peer_failure.h"

#include <fmt/format.h>

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(std::chrono::duration<double> duration) {
  return duration.count();
}

std::string hint_for(const Monitor::Finding& finding) {
  const int rank = finding.rank.value();
  switch (finding.cause) {
    case Monitor::Cause::kSilent:
      return fmt::format("rank {} is stopped, or its machine or network is down", rank);
    case Monitor::Cause::kStuck:
      return fmt::format(
          "rank {} is stuck or far slower than the others; raise --comm-timeout-seconds if the wait is rightful", rank);
    case Monitor::Cause::kDiverged:
      return "these ranks wait for each other in different work: do all run the same binary on the same files?";
    case Monitor::Cause::kStoreSilent:
      return "the host of the store has ended, is stopped, or its machine or network is down";
    case Monitor::Cause::kUnknown:
      break;
  }
  return "that rank is stuck, stopped or far slower than the others; see its last log lines";
}

}  // namespace

std::string LanePlace::name(LaneRank lane_rank) const {
  return fmt::format("rank {} (lane rank {})", world_rank(lane_rank).value(), lane_rank.value());
}

Wait::Wait(const LanePlace& place, LaneRank peer, const ExchangeKey& key)
    : place_(place), peer_(peer), key_(key), begin_(Clock::now()) {
  place_.monitor->begin_wait(place_.world_rank(peer), key);
}

Wait::~Wait() {
  place_.monitor->end_wait();
}

PeerError Wait::failure() const {
  const auto elapsed = Clock::now() - begin_;
  Monitor& monitor = *place_.monitor;
  const bool timed_out = !monitor.note() && monitor.wait_is_over();
  const std::string own = timed_out ? silence(elapsed) : loss(elapsed);
  const auto note = monitor.leave_note(own);
  const Rank self = place_.world_rank(place_.self);
  if (!note || note->rank == self) return PeerError(own, /*echo=*/!timed_out);
  return PeerError(fmt::format("[mesh] {}: stopped in {} after {:.1f} s, because rank {} reported: {}",
                               place_.name(place_.self), describe(key_), seconds(elapsed), note->rank.value(),
                               note->text));
}

std::string Wait::silence(std::chrono::duration<double> elapsed) const {
  const Monitor::Finding finding = place_.monitor->examine();
  return fmt::format(
      "[mesh] {}: no answer from {} in {}: got nothing after {:.1f} s, expected an answer within {:g} s{}{}. Hint: {}.",
      place_.name(place_.self), place_.name(peer_), describe(key_), seconds(elapsed), seconds(place_.timeout),
      finding.text.empty() ? "" : "; ", finding.text, hint_for(finding));
}

std::string Wait::loss(std::chrono::duration<double> elapsed) const {
  const bool cut = place_.monitor->peer_is_alive();
  const Monitor::Finding finding = place_.monitor->examine();
  // Without the store the first to end is its host; the peer may only be the next.
  const bool store_too = finding.cause == Monitor::Cause::kStoreSilent;
  const std::string hint = cut         ? "that rank is alive; the network between the two cut the connection"
                           : store_too ? hint_for(finding)
                                       : "that rank has ended, or its machine is down; its own last lines tell more";
  return fmt::format("[mesh] {}: lost the connection to {} in {} after {:.1f} s{}{}. Hint: {}.",
                     place_.name(place_.self), place_.name(peer_), describe(key_), seconds(elapsed),
                     store_too ? "; " : "", store_too ? finding.text : "", hint);
}

PeerError connect_failure(const LanePlace& place, std::chrono::duration<double> elapsed,
                          std::string_view library_text) {
  const bool silent = elapsed >= place.timeout || library_text.find("imed out") != std::string_view::npos;
  return PeerError(
      fmt::format("[mesh] {}: {} in connecting the lane: got nothing after {:.1f} s, expected all {} ranks within {:g} "
                  "s. Hint: {}.",
                  place.name(place.self), silent ? "no answer from a peer" : "lost the connection to a peer",
                  seconds(elapsed), place.size(), seconds(place.timeout),
                  silent ? "a rank is stopped, or GLOO_SOCKET_IFNAME names an interface that does not reach all hosts"
                         : "that rank has ended; its own error is the cause"));
}

}  // namespace ringfold
