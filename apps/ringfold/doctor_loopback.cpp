// Two processes of this machine as a job of their own: the smallest thing that a parallel run needs.
#include <ATen/ops/ones.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>

#include "doctor_checks.h"
#include "ringfold/base/error.h"
#include "ringfold/mesh/rendezvous.h"

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLimit{15};
constexpr int64_t kElements = 1 << 20;  // 4 MiB

uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(fd);
  return bound ? ntohs(address.sin_port) : 0;
}

// "+ milliseconds", or the error.
std::string run_rank(LaunchEnv env, int rank) {
  env.rank = Rank(rank);
  env.local_rank = rank;
  CommOptions options;
  options.timeout = kLimit;
  options.interface = "127.0.0.1";
  try {
    Rendezvous rendezvous(env, options);
    LaneComms comms = rendezvous.connect_lane({Rank(0), Rank(1)}, "loopback");
    at::Tensor values = at::ones({kElements});
    comms.collectives->all_reduce_sum(values, "the loopback check");
    const auto begin = Clock::now();
    comms.collectives->all_reduce_sum(values, "the loopback check");
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    if (values[kElements - 1].item<float>() != 4) return "the sum is wrong";
    comms.collectives->barrier("the loopback check");
    return fmt::format("+{:.1f}", ms);
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

}  // namespace

Finding check_loopback() {
  Finding finding{"loopback", Health::kProblem, "",
                  "check `ip addr show lo` and the firewall, and free the loopback port range"};
  LaunchEnv env;
  env.world_size = env.local_world_size = 2;
  env.master_port = free_port();
  std::array<int, 2> ends{};
  if (env.master_port == 0 || pipe(ends.data()) != 0) {
    finding.text = "no socket on 127.0.0.1";
    return finding;
  }
  std::array<pid_t, 2> ranks{};
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank] = fork();
    if (ranks[rank] != 0) continue;
    const std::string text = run_rank(env, rank) + "\n";
    // Rank 0 tells when all is well, both tell when not. No destructors: the parent's are not ours to run.
    const bool tells = rank == 0 || text[0] != '+';
    _exit(tells && write(ends[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  close(ends[1]);
  std::string told;
  std::array<char, 1000> buffer{};
  pollfd waiting{ends[0], POLLIN, 0};
  const auto limit_ms = static_cast<int>(std::chrono::milliseconds(kLimit).count()) + 5000;
  while (told.find('\n') == std::string::npos && poll(&waiting, 1, limit_ms) == 1) {
    const ssize_t got = read(ends[0], buffer.data(), buffer.size());
    if (got <= 0) break;
    told.append(buffer.data(), got);
  }
  close(ends[0]);
  for (const pid_t rank : ranks) {
    // Done, or not to be waited for.
    if (told.empty() || told[0] != '+') kill(rank, SIGKILL);
    waitpid(rank, nullptr, 0);
  }
  told = told.substr(0, told.find('\n'));
  if (told.empty() || told[0] != '+') {
    finding.text = told.empty() ? "two processes gave no answer" : told;
    return finding;
  }
  return {"loopback", Health::kOk, fmt::format("two processes sum 4 MiB in {} ms", told.substr(1)), ""};
}

}  // namespace ringfold
