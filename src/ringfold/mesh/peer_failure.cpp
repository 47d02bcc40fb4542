#include "ringfold/mesh/peer_failure.h"

#include <fmt/format.h>

#include <algorithm>

#include "ringfold/mesh/exchange_name.h"
#include "ringfold/mesh/network.h"

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
    case Monitor::Cause::kAllWait:
      return "the network between the GPUs is down, or these ranks wait for each other in different work: do all run "
             "the "
             "same binary on the same files?";
    case Monitor::Cause::kStoreSilent:
      return "the host of the store has ended, is stopped, or its machine or network is down";
    case Monitor::Cause::kUnknown:
      break;
  }
  return "that rank is stuck, stopped or far slower than the others; see its last log lines";
}

// The error of this rank alone, `own`, or the cause that another rank told before.
PeerError agreed_failure(const LanePlace& place, std::string_view operation, std::chrono::duration<double> elapsed,
                         const std::string& own, bool echo) {
  const auto note = place.monitor->leave_note(own, echo);
  if (!note) return PeerError(own, echo);
  return noted_failure(place, operation, elapsed, *note);
}

}  // namespace

std::vector<Rank> LanePlace::others() const {
  std::vector<Rank> ranks = world_ranks;
  ranks.erase(ranks.begin() + self.value());
  return ranks;
}

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
  const bool cut = !timed_out && monitor.peer_is_alive();
  return agreed_failure(place_, exchange_name(key_), elapsed, timed_out ? silence(elapsed) : loss(elapsed, cut),
                        /*echo=*/!timed_out && !cut);
}

std::string Wait::silence(std::chrono::duration<double> elapsed) const {
  const Monitor::Finding finding = place_.monitor->examine();
  return fmt::format(
      "[mesh] {}: no answer from {} in {}: got nothing after {:.1f} s, expected an answer within {:g} s{}{}. Hint: {}.",
      place_.name(place_.self), place_.name(peer_), exchange_name(key_), seconds(elapsed), seconds(place_.timeout),
      finding.text.empty() ? "" : "; ", finding.text, hint_for(finding));
}

std::string Wait::loss(std::chrono::duration<double> elapsed, bool peer_is_alive) const {
  const Monitor::Finding finding = place_.monitor->examine();
  // Without the store the first to end is its host; the peer may only be the next.
  const bool store_too = finding.cause == Monitor::Cause::kStoreSilent;
  const std::string hint = peer_is_alive ? "that rank is alive; the network between the two cut the connection"
                           : store_too   ? hint_for(finding)
                                         : "that rank has ended, or its machine is down; its own last lines tell more";
  return fmt::format("[mesh] {}: lost the connection to {} in {} after {:.1f} s{}{}. Hint: {}.",
                     place_.name(place_.self), place_.name(peer_), exchange_name(key_), seconds(elapsed),
                     store_too ? "; " : "", store_too ? finding.text : "", hint);
}

PeerError peer_failure(const LanePlace& place, std::string_view who, std::string_view operation,
                       std::chrono::duration<double> elapsed, std::string_view library_text) {
  // The clock alone is not enough: a connection may close in the very last moment before the limit.
  const bool silent = elapsed >= place.timeout || library_text.find("imed out") != std::string_view::npos;
  const char* hint = silent ? "that rank is stuck, stopped or far slower than the others, or GLOO_SOCKET_IFNAME names "
                              "an interface that does not reach all hosts"
                            : "that rank has ended; its own error is the cause";
  const std::string own =
      fmt::format("[mesh] {}: {} {} in {}: got nothing after {:.1f} s, expected an answer within {:g} s. Hint: {}.",
                  place.name(place.self), silent ? "no answer from" : "lost the connection to", who, operation,
                  elapsed.count(), seconds(place.timeout), hint);
  return agreed_failure(place, operation, elapsed, own, /*echo=*/!silent);
}

PeerError noted_failure(const LanePlace& place, std::string_view operation, std::chrono::duration<double> elapsed,
                        const Monitor::Note& note) {
  // Another thread of this rank was the first to find something.
  if (note.rank == place.world_rank(place.self)) return PeerError(note.text, note.echo);
  return PeerError(fmt::format("[mesh] {}: stopped in {} after {:.1f} s, because rank {} reported: {}",
                               place.name(place.self), operation, elapsed.count(), note.rank.value(), note.text));
}

std::exception_ptr device_failure(const LanePlace& place, std::string_view operation, std::string_view library_text) {
  const std::string name = place.name(place.self);
  const std::chrono::duration<double> elapsed = place.monitor->device_waited();
  if (library_text.empty()) {
    const Monitor::Finding finding = place.monitor->examine_device();
    const bool named = finding.cause == Monitor::Cause::kSilent || finding.cause == Monitor::Cause::kStuck;
    const std::string own = fmt::format(
        "[mesh] {}: no answer from {} in {}: got nothing after {:.1f} s, expected an answer within {:g} s{}{}. Hint: "
        "{}.",
        name, named ? fmt::format("rank {}", finding.rank.value()) : "the other GPUs", operation, elapsed.count(),
        seconds(place.timeout), finding.text.empty() ? "" : "; ", finding.text, hint_for(finding));
    return std::make_exception_ptr(agreed_failure(place, operation, elapsed, own, /*echo=*/false));
  }
  if (is_about_peer(library_text)) {
    const std::optional<Rank> silent = place.monitor->find_silent(place.others());
    const std::string own = fmt::format(
        "[mesh] {}: lost the connection to {} in {} after {:.1f} s: {}. Hint: that rank has ended, or its machine is "
        "down; its own last lines tell more.",
        name, silent ? fmt::format("rank {}", silent->value()) : "a peer", operation, elapsed.count(),
        nccl_words(library_text));
    return std::make_exception_ptr(agreed_failure(place, operation, elapsed, own, /*echo=*/true));
  }
  const std::string own = fmt::format(
      "[mesh] {}: NCCL failed on this rank in {}: got '{}', expected success. Hint: memory, /dev/shm, the driver or "
      "the "
      "network of this host; NCCL_DEBUG=INFO tells more.",
      name, operation, nccl_words(library_text));
  const auto note = place.monitor->leave_note(own, /*echo=*/false);
  if (!note || note->rank == place.world_rank(place.self)) return std::make_exception_ptr(RunError(own));
  return std::make_exception_ptr(noted_failure(place, operation, elapsed, *note));
}

std::string nccl_words(std::string_view text) {
  constexpr std::string_view kPlace = "NCCL error in: ", kLast = "Last error:\n";
  std::string words = first_line(text);
  if (words.starts_with(kPlace)) words.erase(0, std::min(words.find(", "), words.size() - 2) + 2);
  if (const auto last = text.find(kLast); last != std::string_view::npos) {
    const std::string more = first_line(text.substr(last + kLast.size()));
    if (!more.empty() && !more.starts_with("Exception raised")) words += ": " + more;
  }
  return words;
}

bool is_about_peer(std::string_view text) {
  constexpr std::string_view kSigns[] = {"emote", "abort", "imed out", "imeout", "onnection", "roken pipe"};
  text = text.substr(0, text.find("Exception raised"));
  return std::any_of(std::begin(kSigns), std::end(kSigns),
                     [&](std::string_view sign) { return text.find(sign) != std::string_view::npos; });
}

}  // namespace ringfold
