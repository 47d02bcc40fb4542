// Sees to it that this process ends, with one message, when the thread that should see to that cannot: it may hang in
// the GPU's driver, in a library's call or destructor, or behind the lock of one that does. The guard is a thread of
// the process that touches neither CUDA, c10d nor the job's store.
#pragma once

#include <chrono>
#include <exception>
#include <functional>

#include "ringfold/base/error.h"

namespace ringfold {

// Ends the process unless it is destroyed within the limit. `why` is called on the guard's thread when the limit has
// passed: the failure to report, or null to grant the limit once more. Time for which the whole process was stopped
// does not count.
class Deadline {
 public:
  Deadline(std::chrono::milliseconds limit, std::function<std::exception_ptr()> why);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  int id_;
};

// How long a failed process has for reporting and ending. Longer than all that is waited for on the way.
constexpr std::chrono::seconds kEndLimit{15};

// After a failure: the process ends within kEndLimit, whatever its other threads do, and reports `failure` if none of
// them has reported by then. The first call counts.
void end_process_soon(std::exception_ptr failure);
// The work is done: destructors and handlers of libraries have kEndLimit, then the process ends with `code`, silently.
void end_process_soon(int code);

// Writes what stdio holds and ends the process without destructors.
[[noreturn]] void end_process_now(int code);

// Of the guard and the other threads, who begins to report first does. False: the guard has begun, and ends the process
// in a moment.
bool may_report();

}  // namespace ringfold
