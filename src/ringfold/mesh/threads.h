// What the watching threads of a rank share.
#pragma once

#include <chrono>
#include <future>
#include <thread>
#include <type_traits>
#include <utility>

namespace ringfold {

// A thread that sleeps longer than it asked for, by this, was stopped with its whole process, or with the machine.
inline constexpr std::chrono::seconds kSlept{2};

// Runs `call` on a thread that is left behind if it gets stuck, in a driver, a store or a library: nothing waits for
// it, the future's destructor neither. `call` owns what it needs.
template <typename Call>
std::future<std::invoke_result_t<Call>> run_apart(Call call) {
  std::packaged_task<std::invoke_result_t<Call>()> task(std::move(call));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  return result;
}

}  // namespace ringfold
