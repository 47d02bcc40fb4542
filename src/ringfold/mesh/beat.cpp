#include "ringfold/mesh/beat.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace ringfold {
namespace {

using std::chrono::milliseconds;

// Several times a second: the job's store takes many thousand such writes, and a death is told from a cut connection
// within a second.
constexpr milliseconds kInterval{300};
// A busy machine may delay a beat; a rank is called silent only after this.
constexpr milliseconds kSilence{1500};

std::string key_of(Rank rank) {
  return fmt::format("beat/{}", rank.value());
}

double seconds(BeatReader::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// "number progress waiting_for doing"
Beat parse(const std::string& text) {
  Beat beat;
  const char* at = text.data();
  const char* end = at + text.size();
  const auto next = [&](auto& value) {
    at = std::from_chars(at, end, value).ptr;
    if (at != end) ++at;
  };
  next(beat.number);
  next(beat.progress);
  next(beat.waiting_for);
  beat.doing.assign(at, end);
  return beat;
}

}  // namespace

milliseconds beat_interval(milliseconds timeout) {
  return std::clamp(timeout / 10, milliseconds(20), kInterval);
}

std::string store_prefix(int restart_count) {
  return fmt::format("ringfold/{}", restart_count);
}

std::string note_read_key(Rank rank) {
  return fmt::format("note/read/{}", rank.value());
}

void publish_beat(c10d::Store& store, Rank rank, const Beat& beat) {
  store.set(key_of(rank), fmt::format("{} {} {} {}", beat.number, beat.progress, beat.waiting_for, beat.doing));
}

bool BeatReader::Seen::alive(Clock::time_point now, milliseconds interval) const {
  return came && now - heard_at < std::clamp(4 * interval, 2 * interval, kSilence);
}

const BeatReader::Seen& BeatReader::look(c10d::Store& store, Rank rank) {
  const auto [entry, first] = seen_.try_emplace(rank.value());
  Seen& seen = entry->second;
  if (first) seen.heard_at = seen.moved_at = since_;
  seen.moved = false;
  if (!seen.came && !store.check({key_of(rank)})) return seen;
  Beat beat = parse(store.get_to_str(key_of(rank)));
  const auto now = Clock::now();
  // The first look tells where the rank is, not since when.
  if (seen.came && beat.number != seen.beat.number) seen.heard_at = now;
  seen.moved = seen.came && beat.progress != seen.beat.progress;
  if (seen.moved) seen.moved_at = now;
  seen.came = true;
  seen.beat = std::move(beat);
  return seen;
}

std::string describe_seen(Rank rank, const BeatReader::Seen& seen, milliseconds interval) {
  const auto now = BeatReader::Clock::now();
  if (!seen.came) return fmt::format("rank {} never came", rank.value());
  if (!seen.alive(now, interval)) {
    return fmt::format("rank {} was last heard of {:.1f} s ago, in {}", rank.value(), seconds(now - seen.heard_at),
                       seen.beat.doing);
  }
  return fmt::format("rank {} is alive and has been in {} for {:.1f} s", rank.value(), seen.beat.doing,
                     seconds(now - seen.moved_at));
}

}  // namespace ringfold
