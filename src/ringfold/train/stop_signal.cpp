#include "ringfold/train/stop_signal.h"

#include <algorithm>
#include <csignal>
#include <ctime>

namespace ringfold {
namespace {

volatile std::sig_atomic_t stop_signal = 0;
volatile std::sig_atomic_t stop_second = 0;

// The first signal asks for a stop after the step, one that comes later for the end at once. One stop may be told twice
// together: to the process group, and by the launcher.
void remember_signal(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto second = static_cast<std::sig_atomic_t>(now.tv_sec);
  if (stop_signal == 0) {
    stop_signal = signal;
    stop_second = second;
  } else if (second - stop_second >= 2) {
    std::signal(signal, SIG_DFL);
    raise(signal);
  }
}

}  // namespace

void watch_stop_signals() {
  std::signal(SIGTERM, remember_signal);
  std::signal(SIGINT, remember_signal);
}

int agreed_stop_signal(Collectives& collectives) {
  const auto signals = collectives.all_gather_double(stop_signal, "stop signal");
  return static_cast<int>(*std::max_element(signals.begin(), signals.end()));
}

}  // namespace ringfold
