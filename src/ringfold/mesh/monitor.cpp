#include "ringfold/mesh/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <future>
#include <mutex>
#include <vector>

#include "ringfold/mesh/beat.h"
#include "ringfold/mesh/device_wait.h"
#include "ringfold/mesh/exchange_name.h"
#include "ringfold/mesh/fault.h"
#include "ringfold/mesh/threads.h"

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long a failing rank waits for the store to take or give the note.
constexpr milliseconds kNoteLimit{2000};
constexpr milliseconds kStoreSilence{1500};
// Chains of waits that are longer are cut in the message.
constexpr size_t kLongestChain = 16;

Monitor::Note parse_note(const std::string& text) {
  int rank = 0;
  const char* end = std::from_chars(text.data(), text.data() + text.size(), rank).ptr;
  return {Rank(rank), text.substr(std::min<size_t>(end - text.data() + 1, text.size()))};
}

}  // namespace

struct Monitor::State {
  const std::shared_ptr<c10d::Store> store;
  const Rank self;
  const milliseconds timeout, interval;
  const std::string store_host;

  mutable std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;

  // What this rank does.
  std::string stage = "starting";
  int64_t step = 0;
  int micro_step = -1;
  int64_t progress = 0;

  // The present wait.
  bool waiting = false;
  int64_t wait_number = 0;
  Rank peer;
  ExchangeKey key;
  Clock::time_point began_at;
  Clock::time_point moved_at;  // when the wait began, or somebody it hangs on got on
  // Ranks in the order of their waits; the last waits for nobody, or for one before it (a circle).
  std::vector<Rank> chain;
  BeatReader reader{Clock::now()};

  std::optional<DeviceWait> device_wait;
  int64_t device_wait_number = 0;
  bool device_look_closely = false;

  void begin_device_wait(const std::vector<Rank>& others, const std::string& operation) {
    device_wait.emplace(others, operation, Clock::now());
    ++device_wait_number;
  }

  // Set: the chain is followed at once, not only in a long wait; the peer's numbers of these looks.
  bool look_closely = false;
  std::vector<int64_t> close_looks;

  // The note.
  std::string own_note;  // to be left
  bool own_note_is_given = false, own_note_is_echo = false;
  std::function<void(const Note&)> on_note;
  std::optional<Note> note;
  bool note_read = false;  // told to the others; of the thread
  bool store_lost = false;
  Clock::time_point store_answered_at = Clock::now();

  std::future<void> ended;  // the thread

  State(std::shared_ptr<c10d::Store> its_store, Rank rank, milliseconds limit, std::string host)
      : store(std::move(its_store)),
        self(rank),
        timeout(limit),
        interval(beat_interval(limit)),
        store_host(std::move(host)) {}

  bool store_is_silent() const { return store_lost || Clock::now() - store_answered_at > kStoreSilence + interval; }

  Finding silent_store() const {
    return {Cause::kStoreSilent, peer,
            fmt::format("the job's store, which {} hosts, {} either", store_host,
                        store_lost ? "is not there" : "does not answer")};
  }

  // A wait of the device that is worth a word: it always has work, and looks at others cost.
  bool device_waits_long(milliseconds limit) const {
    return device_wait && Clock::now() - device_wait->began_at() > limit;
  }

  int waiting_for() const {
    if (waiting) return peer.value();
    return device_waits_long(interval) ? Beat::kForLane : Beat::kForNobody;
  }

  std::string doing() const {
    if (waiting) return exchange_name(key);
    if (device_waits_long(interval)) return device_wait->operation();
    std::string text = stage;
    if (step > 0) {
      text += micro_step >= 0 ? fmt::format(" (micro-step {}, step {})", micro_step, step)
                              : fmt::format(" (step {})", step);
    }
    return text;
  }

  void run() {
    try {
      for (int64_t number = 1;; ++number) {
        round(number);
        std::unique_lock lock(mutex);
        store_answered_at = Clock::now();
        changed.notify_all();
        const bool was_close = look_closely;
        changed.wait_for(lock, interval, [&] { return stop || !own_note.empty() || look_closely != was_close; });
        if (stop) return;
      }
    } catch (const std::exception&) {
      // The store has ended, and its host with it: the connections will tell.
      const std::lock_guard lock(mutex);
      store_lost = true;
      changed.notify_all();
    }
  }

  // Store calls are made without the lock: the rank's work must not wait for them.
  void round(int64_t number) {
    std::unique_lock lock(mutex);
    const Beat beat{number, progress, waiting_for(), doing()};
    const bool close = look_closely;
    const bool long_wait = waiting && (close || Clock::now() - began_at > interval);
    const int64_t this_wait = wait_number;
    const Rank first = peer;
    const bool long_device_wait = device_look_closely || device_waits_long(std::max(interval, timeout / 4));
    const std::string text = std::exchange(own_note, {});
    lock.unlock();
    publish_beat(*store, self, beat);
    if (!text.empty()) {
      leave(text);
    } else if (!note_read && store->check({kNoteKey})) {
      take_note(store->get_to_str(kNoteKey));
    }
    if (long_wait) follow(this_wait, first, close);
    if (long_device_wait) look_at_lane();
  }

  void look_at_lane() {
    std::unique_lock lock(mutex);
    if (!device_wait) return;
    const int64_t number = device_wait_number;
    DeviceWait looked = *device_wait;
    lock.unlock();
    looked.look(*store);
    lock.lock();
    if (device_wait && device_wait_number == number) device_wait = std::move(looked);
  }

  void leave(const std::string& text) {
    const std::string mine = fmt::format("{} {}", self.value(), text);
    const std::vector<uint8_t> winner =
        store->compareSet(kNoteKey, std::vector<uint8_t>(), std::vector<uint8_t>(mine.begin(), mine.end()));
    take_note({winner.begin(), winner.end()});
  }

  void take_note(const std::string& text) {
    std::function<void(const Note&)> call;
    Note taken = parse_note(text);
    {
      const std::lock_guard lock(mutex);
      if (taken.rank == self) taken.echo = own_note_is_echo;
      note = taken;
      call = std::exchange(on_note, {});
    }
    store->set(note_read_key(self), "");
    note_read = true;
    if (call) call(taken);
  }

  void follow(int64_t this_wait, Rank first, bool close) {
    std::vector<Rank> found;
    bool moved = false;
    BeatReader looked = copy_of_reader(this_wait);
    for (Rank rank = first; found.size() < kLongestChain;) {
      found.push_back(rank);
      const BeatReader::Seen& seen = looked.look(*store, rank);
      moved = moved || seen.moved;
      const Rank next(seen.beat.waiting_for);
      if (next.value() < 0 || next == self || std::find(found.begin(), found.end(), next) != found.end()) break;
      rank = next;
    }
    const std::lock_guard lock(mutex);
    if (wait_number != this_wait) return;
    reader = std::move(looked);
    chain = std::move(found);
    if (close) close_looks.push_back(reader.seen().at(first.value()).beat.number);
    if (moved) moved_at = Clock::now();
  }

  BeatReader copy_of_reader(int64_t this_wait) {
    const std::lock_guard lock(mutex);
    return wait_number == this_wait ? reader : BeatReader(Clock::now());
  }
};

Monitor::Monitor(std::shared_ptr<c10d::Store> store, Rank self, milliseconds timeout, std::string store_host)
    : state_(std::make_shared<State>(std::move(store), self, timeout, std::move(store_host))) {
  state_->ended = run_apart([state = state_]() noexcept { state->run(); });
}

Monitor::~Monitor() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  // A store that does not answer keeps the thread.
  state_->ended.wait_for(kNoteLimit);
}

void Monitor::enter(std::string_view stage, int64_t step, int micro_step) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stage = stage;
    state_->step = step;
    state_->micro_step = micro_step;
    ++state_->progress;
  }
  inject_fault(state_->self, step, stage);
}

int64_t Monitor::step() const {
  const std::lock_guard lock(state_->mutex);
  return state_->step;
}

void Monitor::begin_wait(Rank peer, const ExchangeKey& key) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting = true;
  ++state_->wait_number;
  state_->peer = peer;
  state_->key = key;
  state_->began_at = state_->moved_at = Clock::now();
  state_->reader = BeatReader(state_->began_at);
  state_->chain.clear();
}

void Monitor::end_wait() {
  const std::lock_guard lock(state_->mutex);
  state_->waiting = false;
  ++state_->progress;
}

bool Monitor::wait_is_over() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting && (state_->note || Clock::now() - state_->moved_at >= state_->timeout);
}

void Monitor::device_waits(const std::vector<Rank>& others, const std::string& operation) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->device_wait) state_->begin_device_wait(others, operation);
}

void Monitor::device_got_on() {
  const std::lock_guard lock(state_->mutex);
  state_->device_wait.reset();
  ++state_->progress;
}

void Monitor::device_is_free() {
  const std::lock_guard lock(state_->mutex);
  state_->device_wait.reset();
}

std::chrono::duration<double> Monitor::device_waited() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->device_wait) return {};
  return Clock::now() - state_->device_wait->began_at();
}

bool Monitor::device_wait_is_over() const {
  const std::lock_guard lock(state_->mutex);
  return state_->device_wait && state_->device_wait->is_over(Clock::now(), state_->timeout);
}

std::optional<Rank> Monitor::find_silent(const std::vector<Rank>& others) {
  std::unique_lock lock(state_->mutex);
  State& s = *state_;
  s.begin_device_wait(others, s.doing());  // anew: what was not looked at before is not silent
  s.device_look_closely = true;
  std::optional<Rank> silent;
  s.changed.wait_for(lock, 8 * s.interval, [&] {
    if (!s.device_wait || s.note || s.store_lost) return true;
    const Finding finding = s.device_wait->examine(Clock::now(), s.interval);
    if (finding.cause == Cause::kSilent) silent = finding.rank;
    return silent.has_value();
  });
  s.device_look_closely = false;
  return silent;
}

void Monitor::forgive_sleep() {
  const std::lock_guard lock(state_->mutex);
  state_->moved_at = Clock::now();
  if (!state_->device_wait) return;
  state_->device_wait->forgive(state_->moved_at);
  ++state_->device_wait_number;  // what a look before found does not count
}

void Monitor::on_note(std::function<void(const Note&)> call) {
  std::unique_lock lock(state_->mutex);
  if (!call || !state_->note) {
    state_->on_note = std::move(call);
    return;
  }
  const Note note = *state_->note;
  lock.unlock();
  call(note);
}

std::optional<Monitor::Note> Monitor::leave_note(const std::string& own_text, bool echo) {
  std::unique_lock lock(state_->mutex);
  if (state_->note || state_->store_is_silent()) return state_->note;
  if (!std::exchange(state_->own_note_is_given, true)) {
    state_->own_note = own_text;
    state_->own_note_is_echo = echo;
  }
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kNoteLimit, [&] { return state_->note || state_->store_lost; });
  return state_->note;
}

std::optional<Monitor::Note> Monitor::note() const {
  const std::lock_guard lock(state_->mutex);
  return state_->note;
}

Monitor::Finding Monitor::examine_device() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->store_is_silent()) return state_->silent_store();
  if (!state_->device_wait) return {};
  return state_->device_wait->examine(Clock::now(), state_->interval);
}

Monitor::Finding Monitor::examine() const {
  const std::lock_guard lock(state_->mutex);
  const State& s = *state_;
  const auto now = Clock::now();
  if (s.store_is_silent()) return s.silent_store();
  if (s.chain.empty()) return {Cause::kUnknown, s.peer, ""};
  std::string text;
  for (size_t i = 0; i + 1 < s.chain.size(); ++i) {
    text += fmt::format("rank {} waits for rank {} in {}; ", s.chain[i].value(), s.chain[i + 1].value(),
                        s.reader.seen().at(s.chain[i].value()).beat.doing);
  }
  const Rank last = s.chain.back();
  const BeatReader::Seen& seen = s.reader.seen().at(last.value());
  if (!seen.alive(now, s.interval)) return {Cause::kSilent, last, text + describe_seen(last, seen, s.interval)};
  if (seen.beat.waiting_for >= 0) {
    text += fmt::format("rank {} waits for rank {} in {}", last.value(), seen.beat.waiting_for, seen.beat.doing);
    return {Cause::kDiverged, last, text};
  }
  return {Cause::kStuck, last, text + describe_seen(last, seen, s.interval)};
}

bool Monitor::peer_is_alive() {
  std::unique_lock lock(state_->mutex);
  State& s = *state_;
  // Looks that began before this call may have seen it alive, and well.
  const auto beats = [&s] { return s.close_looks.size() > 1 && s.close_looks.back() != s.close_looks.front(); };
  s.close_looks.clear();
  s.look_closely = true;
  s.changed.notify_all();
  s.changed.wait_for(lock, 4 * s.interval, [&] { return beats() || s.note || s.store_lost; });
  s.look_closely = false;
  return beats();
}

}  // namespace ringfold
