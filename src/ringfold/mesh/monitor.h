// Where every rank is, told through the job's store. A thread beside the rank's work publishes its beat (mesh/beat.h).
// While the rank waits for a peer the thread follows the waits from there - the peer waits for another rank, that one
// computes - and so tells a rank that is rightly waited for from one that is stopped, stuck or has taken another way.
//
// The first rank that fails, or gives another one up, leaves a note. Every rank that waits ends at once when it finds
// the note, and names the same cause.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ringfold/base/ids.h"
#include "ringfold/mesh/exchange.h"

namespace c10d {
class Store;
}

namespace ringfold {

class Monitor {
 public:
  struct Note {
    Rank rank;          // who left it
    std::string text;   // the error that this rank ended with
    bool echo = false;  // of this rank's own note: of a lost peer, whose own error is the cause
  };

  // `store` is a connection of its own: a call that is never answered blocks only the monitor. `store_host` says in
  // messages who ends when the store does ("rank 0", "the launcher").
  Monitor(std::shared_ptr<c10d::Store> store, Rank self, std::chrono::milliseconds timeout, std::string store_host);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // What this rank does from now on; micro_step < 0: none.
  void enter(std::string_view stage, int64_t step, int micro_step);
  int64_t step() const;

  // This rank waits for `peer` in an exchange, until end_wait. The text of `key` stays alive that long.
  void begin_wait(Rank peer, const ExchangeKey& key);
  void end_wait();

  // The wait has lasted for the timeout, and nobody it hangs on has got on meanwhile; or a note was left.
  bool wait_is_over() const;
  // Of the device's watch (mesh/device_watch.h), a few times a second: the device waits for `others` in `operation`,
  // now or still; it got on since the last call, or has nothing to wait for.
  void device_waits(const std::vector<Rank>& others, const std::string& operation);
  void device_got_on();
  void device_is_free();
  // How long the device's wait has lasted, and whether it has come to nothing: nobody has got on for the timeout.
  std::chrono::duration<double> device_waited() const;
  bool device_wait_is_over() const;
  // After the device has lost a peer: looks at the others for some beats, and names one that gives no sign of life.
  std::optional<Rank> find_silent(const std::vector<Rank>& others);

  // This process slept (it was stopped, or the machine was): the time does not count against the peers.
  void forgive_sleep();

  // For the message of a wait that is over. Leaves `own_text` as the note unless there is one; returns the note that
  // counts, or nothing when the store does not answer.
  std::optional<Note> leave_note(const std::string& own_text, bool echo);
  std::optional<Note> note() const;
  // Called once, on the monitor's thread or this one, when there is a note; empty: no longer.
  void on_note(std::function<void(const Note&)> call);

  // Whom the present wait hangs on.
  enum class Cause { kUnknown, kSilent, kStuck, kDiverged, kAllWait, kStoreSilent };
  struct Finding {
    Cause cause = Cause::kUnknown;
    Rank rank;         // the last of the chain; for kDiverged one of the circle
    std::string text;  // "rank 3 waits for rank 2 in ...; rank 2 was last heard of 9.8 s ago, in forward (step 3)"
  };
  Finding examine() const;
  Finding examine_device() const;
  // Whether the peer of the present wait still gives signs of life: then its connection was cut. Looks for two beats.
  bool peer_is_alive();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which is left behind when the store does not answer
};

}  // namespace ringfold
