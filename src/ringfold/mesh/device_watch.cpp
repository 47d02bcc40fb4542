#include "ringfold/mesh/device_watch.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>

#include "ringfold/mesh/process_end.h"
#include "ringfold/mesh/threads.h"

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterval{100};
// A thread that issues is given this long to come back before the communicators are aborted under it.
constexpr std::chrono::seconds kIssueLimit{2};
// A look asks the driver, which may keep it while another thread waits for the device.
constexpr std::chrono::seconds kLookLimit{5};
constexpr std::chrono::seconds kStopLimit{2};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace

struct DeviceWatch::State : std::enable_shared_from_this<State> {
  struct InFlight {
    WorkPtr work;
    std::string operation;
    Clock::time_point since;
  };

  const LanePlace place;
  const std::function<void()> abort;
  const std::vector<Rank> others = place.others();
  std::timed_mutex issuing;  // held while communicators are called

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::array<std::deque<InFlight>, 3> in_flight;  // by stream
  std::optional<InFlight> being_issued;           // without work yet
  std::exception_ptr failure;
  bool stop = false;
  std::future<void> ended;  // the thread

  State(LanePlace its_place, std::function<void()> its_abort)
      : place(std::move(its_place)), abort(std::move(its_abort)) {}

  // Keeps the first failure and returns it.
  std::exception_ptr fail(const std::string& operation, const std::string& library_text) {
    {
      const std::lock_guard lock(mutex);
      if (failure) return failure;
    }
    const std::exception_ptr found = device_failure(place, operation, library_text);
    const std::lock_guard lock(mutex);
    if (!failure) failure = found;
    end_process_soon(failure);
    changed.notify_all();
    return failure;
  }

  // The driver is asked without the lock, which the rank's work needs.
  std::exception_ptr look() {
    const auto begin = Clock::now();
    bool got_on = false;
    std::optional<InFlight> oldest;
    for (size_t stream = 0; stream < in_flight.size(); ++stream) {
      std::optional<InFlight> front;
      const bool hangs_on_peers = stream != static_cast<size_t>(Stream::kOwn);
      while ((front = front_of(stream))) {
        // Before the driver is asked: it may not answer.
        if (hangs_on_peers) place.monitor->device_waits(others, front->operation);
        std::string error;
        if (!is_done(*front->work, error)) break;
        if (!error.empty()) return fail(front->operation, error);
        pop(stream);
        got_on = true;
      }
      if (hangs_on_peers && front && (!oldest || front->since < oldest->since)) oldest = front;
    }
    if (!oldest) oldest = issue_under_way();
    if (Clock::now() - begin > kSlept) place.monitor->forgive_sleep();
    return judge(got_on, oldest);
  }

  std::exception_ptr judge(bool got_on, const std::optional<InFlight>& oldest) {
    Monitor& monitor = *place.monitor;
    if (got_on) monitor.device_got_on();
    if (!oldest) {
      monitor.device_is_free();
      return nullptr;
    }
    monitor.device_waits(others, oldest->operation);
    if (!monitor.note() && !monitor.device_wait_is_over()) return nullptr;
    return fail(oldest->operation, "");
  }

  // c10d calls failed work completed.
  static bool is_done(c10d::Work& work, std::string& error) {
    try {
      const bool done = work.isCompleted();
      if (const std::exception_ptr failed = work.exception()) error = text_of(failed);
      return done || !error.empty();
    } catch (...) {
      error = text_of(std::current_exception());
      return true;
    }
  }

  std::optional<InFlight> front_of(size_t stream) const {
    const std::lock_guard lock(mutex);
    if (in_flight[stream].empty()) return std::nullopt;
    return in_flight[stream].front();
  }
  void pop(size_t stream) {
    const std::lock_guard lock(mutex);
    in_flight[stream].pop_front();
  }
  std::optional<InFlight> issue_under_way() const {
    const std::lock_guard lock(mutex);
    return being_issued;
  }
  bool is_busy() const {
    return being_issued || std::any_of(in_flight.begin(), in_flight.end(), [](const auto& s) { return !s.empty(); });
  }

  // Of a look that does not come back; null while the wait itself is rightful.
  std::exception_ptr lost_in_driver() const {
    if (!place.monitor->note() && !place.monitor->device_wait_is_over()) return nullptr;
    return device_failure(place, "work that the GPU's driver gives no answer about", "");
  }

  void run() {
    std::unique_lock lock(mutex);
    for (auto slept_at = Clock::now(); !changed.wait_for(lock, kInterval, [this] { return stop || failure; });
         slept_at = Clock::now()) {
      if (Clock::now() - slept_at > kSlept) place.monitor->forgive_sleep();
      std::optional<Deadline> limit;
      if (is_busy()) {
        limit.emplace(place.timeout + kLookLimit, [self = shared_from_this()] { return self->lost_in_driver(); });
      }
      lock.unlock();
      look();
      lock.lock();
    }
    if (!failure) return;
    lock.unlock();
    // A thread that is stuck in NCCL holds the lock, and only the abort frees it.
    std::unique_lock issue_lock(issuing, std::defer_lock);
    (void)issue_lock.try_lock_for(kIssueLimit);
    abort();
  }
};

DeviceWatch::DeviceWatch(LanePlace place, std::function<void()> abort)
    : state_(std::make_shared<State>(std::move(place), std::move(abort))) {
  // Also where the rank's work never comes to look, and the watch hangs in the driver.
  state_->place.monitor->on_note([weak = std::weak_ptr(state_)](const Monitor::Note& note) {
    const auto state = weak.lock();
    if (!state) return;
    const auto waited = state->place.monitor->device_waited();
    end_process_soon(std::make_exception_ptr(noted_failure(state->place, "its work", waited, note)));
  });
  state_->ended = run_apart([state = state_]() noexcept { state->run(); });
}

DeviceWatch::~DeviceWatch() {
  state_->place.monitor->on_note({});
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  state_->ended.wait_for(kStopLimit);
}

DeviceWatch::WorkPtr DeviceWatch::issue(Stream stream, const std::string& operation,
                                        const std::function<WorkPtr()>& call) {
  State& s = *state_;
  std::unique_lock issuing(s.issuing);
  check(operation);
  {
    const std::lock_guard lock(s.mutex);
    s.being_issued = {nullptr, operation, Clock::now()};
  }
  WorkPtr work;
  std::exception_ptr error;
  try {
    work = call();
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(s.mutex);
    s.being_issued.reset();
    if (work) s.in_flight[static_cast<size_t>(stream)].push_back({work, operation, Clock::now()});
  }
  issuing.unlock();
  if (error) std::rethrow_exception(s.fail(operation, text_of(error)));
  return work;
}

void DeviceWatch::wait(c10d::Work& work, const std::string& operation) {
  check(operation);
  std::exception_ptr error;
  try {
    work.wait();
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  if (error) std::rethrow_exception(state_->fail(operation, text_of(error)));
}

void DeviceWatch::check(const std::string& operation) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->failure) std::rethrow_exception(state_->failure);
  }
  if (state_->place.monitor->note()) std::rethrow_exception(state_->fail(operation, ""));
}

bool DeviceWatch::has_failed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure != nullptr;
}

}  // namespace ringfold
