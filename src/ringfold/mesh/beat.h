// A rank's sign of life in the job's store: a running number, how far it has come, and what it is doing. Ranks publish
// one a few times a second (mesh/monitor.h) and read those of others only while they wait for long.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "ringfold/base/ids.h"
#include "ringfold/mesh/store.h"

namespace ringfold {

struct Beat {
  int64_t number = 0;    // grows with time: the process is alive
  int64_t progress = 0;  // grows with its work: the rank gets on
  static constexpr int kForNobody = -1, kForLane = -2;
  int waiting_for = kForNobody;  // world rank, or one of these; kForLane: its device waits for any of its lane
  std::string doing;             // "forward (micro-step 1, step 3)"
};

// Under which a job keeps its keys: a restarted job meets those of its earlier attempt in the launcher's store.
std::string store_prefix(int restart_count);

// Under it the first rank that fails tells its failure (mesh/monitor.h).
inline constexpr const char* kNoteKey = "note";
// Set by a rank that has read it.
std::string note_read_key(Rank rank);

void publish_beat(c10d::Store& store, Rank rank, const Beat& beat);

// What one rank has seen of the beats of others since it began to look. Times are those of its own clock.
class BeatReader {
 public:
  using Clock = std::chrono::steady_clock;
  struct Seen {
    Beat beat;
    bool came = false;           // it has published a beat
    bool moved = false;          // its progress changed at the last look
    Clock::time_point heard_at;  // when its number last changed
    Clock::time_point moved_at;  // when its progress last changed
    bool alive(Clock::time_point now, std::chrono::milliseconds interval) const;
  };

  // A rank that has not been looked at yet counts as heard of, and as moved, at `since`.
  explicit BeatReader(Clock::time_point since) : since_(since) {}
  // Asks the store for the rank's beat. Throws what the store throws.
  const Seen& look(c10d::Store& store, Rank rank);
  const std::map<int, Seen>& seen() const { return seen_; }

 private:
  Clock::time_point since_;
  std::map<int, Seen> seen_;  // by world rank
};

// "rank 2 was last heard of 9.8 s ago, in forward (step 3)", "rank 2 has been in forward (step 3) for 12.0 s".
std::string describe_seen(Rank rank, const BeatReader::Seen& seen, std::chrono::milliseconds interval);

// How often a rank publishes its beat, under this --comm-timeout-seconds.
std::chrono::milliseconds beat_interval(std::chrono::milliseconds timeout);

}  // namespace ringfold
