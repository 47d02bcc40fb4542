#include "ringfold/mesh/process_end.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "ringfold/mesh/failure.h"
#include "ringfold/mesh/threads.h"

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kInterval{100};
// A report that has begun, or the finding of its cause, is given this long.
constexpr std::chrono::seconds kReportLimit{8};

enum class Speaker { kNobody, kWork, kGuard };
std::atomic<Speaker> speaker{Speaker::kNobody};
thread_local bool is_guard = false;

// On a thread to leave behind: finding the cause, and telling it, may need a lock that somebody holds for ever.
void find_and_report(const std::function<std::exception_ptr()>& why, std::promise<void>& granted) {
  is_guard = true;
  const std::exception_ptr failure = why();
  if (!failure) return granted.set_value();
  Speaker nobody = Speaker::kNobody;
  if (!speaker.compare_exchange_strong(nobody, Speaker::kGuard)) return;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    end_process_now(report_failure(error, read_launch_env()));
  }
}

class Guard {
 public:
  // Never destroyed: it outlives everything else.
  static Guard& only() {
    static Guard* const guard = new Guard;
    return *guard;
  }

  int add(milliseconds limit, std::function<std::exception_ptr()> why, int code) {
    const std::lock_guard lock(mutex_);
    const int id = ++last_id_;
    deadlines_[id] = {Clock::now() + limit, limit, std::move(why), code};
    changed_.notify_one();
    return id;
  }
  void remove(int id) {
    const std::lock_guard lock(mutex_);
    deadlines_.erase(id);
  }

 private:
  struct Entry {
    Clock::time_point at;
    milliseconds limit;
    std::function<std::exception_ptr()> why;  // empty: end silently with `code`
    int code;
  };

  Guard() {
    std::thread([this] { run(); }).detach();
  }

  [[noreturn]] void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !deadlines_.empty(); });
      const auto slept_at = Clock::now();
      lock.unlock();
      std::this_thread::sleep_for(kInterval);
      lock.lock();
      const auto slept = Clock::now() - slept_at;
      for (auto& [id, entry] : deadlines_) {
        if (slept > kSlept) entry.at += slept;
      }
      const auto over = std::find_if(deadlines_.begin(), deadlines_.end(),
                                     [](const auto& entry) { return Clock::now() >= entry.second.at; });
      if (over == deadlines_.end()) continue;
      const auto [id, entry] = *over;
      lock.unlock();
      end_unless_granted(entry);
      lock.lock();
      if (const auto granted = deadlines_.find(id); granted != deadlines_.end()) {
        granted->second.at = Clock::now() + entry.limit;
      }
    }
  }

  // Returns only when the deadline begins anew.
  static void end_unless_granted(const Entry& entry) {
    if (!entry.why) _exit(entry.code);
    const auto granted = std::make_shared<std::promise<void>>();
    std::thread([why = entry.why, granted] { find_and_report(why, *granted); }).detach();
    if (granted->get_future().wait_for(kReportLimit) == std::future_status::ready) return;
    _exit(entry.code);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Entry> deadlines_;
  int last_id_ = 0;
};

}  // namespace

Deadline::Deadline(milliseconds limit, std::function<std::exception_ptr()> why)
    : id_(Guard::only().add(limit, std::move(why), static_cast<int>(ExitCode::kFailure))) {}

Deadline::~Deadline() {
  Guard::only().remove(id_);
}

void end_process_soon(std::exception_ptr failure) {
  static std::atomic<bool> armed{false};
  if (armed.exchange(true)) return;
  Guard::only().add(
      kEndLimit, [failure] { return failure; }, static_cast<int>(ExitCode::kFailure));
}

void end_process_soon(int code) {
  Guard::only().add(kEndLimit, {}, code);
}

void end_process_now(int code) {
  std::fflush(nullptr);
  _exit(code);
}

bool may_report() {
  Speaker nobody = Speaker::kNobody;
  return is_guard || speaker.compare_exchange_strong(nobody, Speaker::kWork) || nobody == Speaker::kWork;
}

}  // namespace ringfold
