#include "ringfold/mesh/failure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <new>
#include <string_view>
#include <thread>

#include "ringfold/mesh/network.h"
#include "ringfold/mesh/process_end.h"

namespace ringfold {
namespace {

constexpr std::chrono::seconds kEchoWait{3};
constexpr std::chrono::milliseconds kSilentWait{500};

// True when no other rank has spoken. Without a launcher every rank speaks for itself.
bool take_voice(const LaunchEnv& env) {
  if (env.voice_fd < 0) return true;
  char voice = 0;
  // The pipe does not block; a descriptor that is not ours any more must not silence the rank.
  const ssize_t got = read(env.voice_fd, &voice, 1);
  return got == 1 || (got < 0 && errno != EAGAIN);
}

}  // namespace

bool is_out_of_memory(const std::exception& failure) {
  // Our own errors say what they are; one may tell of another rank's memory.
  if (dynamic_cast<const Error*>(&failure) != nullptr) return false;
  // ATen's CPU allocator has no exception type of its own; that of a GPU says "out of memory".
  const std::string_view text = failure.what();
  return dynamic_cast<const std::bad_alloc*>(&failure) != nullptr ||
         text.find("allocate memory") != std::string_view::npos || text.find("out of memory") != std::string_view::npos;
}

std::string message_of(const std::exception& failure, Rank rank) {
  if (dynamic_cast<const Error*>(&failure) != nullptr) return failure.what();
  if (is_out_of_memory(failure)) {
    return fmt::format("[main] rank {}: out of memory. Hint: a smaller model or budget, or fewer ranks a machine",
                       rank.value());
  }
  // Foreign exceptions may carry a stack trace; the first line says what happened.
  return fmt::format("[main] rank {}: {}", rank.value(), first_line(failure.what()));
}

int report_failure(const std::exception& failure, const LaunchEnv& env, bool shared_by_all_ranks) {
  const auto* known = dynamic_cast<const Error*>(&failure);
  const int code = static_cast<int>(known != nullptr ? known->exit_code() : ExitCode::kFailure);
  if (dynamic_cast<const ReportedElsewhere*>(&failure) != nullptr) return code;
  const bool told_here = dynamic_cast<const ToldHere*>(&failure) != nullptr;
  if (shared_by_all_ranks && !told_here && env.rank != Rank(0)) return code;
  if (!may_report()) {
    std::this_thread::sleep_for(kEndLimit);
    return code;
  }
  const auto* lost_peer = dynamic_cast<const PeerError*>(&failure);
  if (env.under_ringfold_launch && lost_peer != nullptr && lost_peer->is_echo()) {
    // There is nothing left to save: the launcher's SIGTERM shall end the wait at once.
    std::signal(SIGTERM, SIG_DFL);
    std::this_thread::sleep_for(kEchoWait);
  }
  // A cause is always told, and takes the voice from the others.
  if (!take_voice(env) && lost_peer != nullptr) {
    // The speaker shall be seen to end first.
    std::this_thread::sleep_for(kSilentWait);
    return code;
  }
  const std::string line = fmt::format("ringfold: error: {}\n", message_of(failure, env.rank));
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  return code;
}

int report_run_failure(const std::exception& failure, const LaunchEnv& env) {
  const auto* known = dynamic_cast<const Error*>(&failure);
  const bool shared =
      known != nullptr && (known->exit_code() == ExitCode::kUsage || known->exit_code() == ExitCode::kNoPlan);
  return report_failure(failure, env, shared);
}

void throw_agreed_failure(const std::vector<Rendezvous::Status>& failures, Rank self) {
  if (failures.empty()) return;
  const ExitCode code = failures.front().code;
  const auto own =
      std::find_if(failures.begin(), failures.end(), [&](const auto& status) { return status.rank == self; });
  if (own == failures.end()) throw ReportedElsewhere(code);
  const auto first_alike =
      std::find_if(failures.begin(), failures.end(), [&](const auto& status) { return status.error == own->error; });
  if (first_alike != own) throw ReportedElsewhere(code);
  throw ToldHere(code, own->error);
}

}  // namespace ringfold
