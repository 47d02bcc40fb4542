#include "ringfold/mesh/fault.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ringfold/base/error.h"
#include "ringfold/mesh/launch_env.h"

namespace ringfold {
namespace {

struct Fault {
  std::optional<int64_t> rank, step;  // none: all
  std::string stage, action;
  double seconds = 0;
};

[[noreturn]] void refuse(const std::string& text) {
  throw UsageError(
      fmt::format("[fault] RINGFOLD_FAULT: got '{}', expected rank:step:stage:action[:seconds], e.g. 2:3:forward:kill. "
                  "Hint: unset it; it is for tests only.",
                  text));
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::optional<int64_t> number_or_all(const std::string& part, const std::string& text) {
  if (part == "*") return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc() || end != part.data() + part.size()) refuse(text);
  return value;
}

std::vector<Fault> read_faults() {
  const char* text = std::getenv("RINGFOLD_FAULT");
  std::vector<Fault> faults;
  if (text == nullptr || *text == '\0') return faults;
  for (const std::string& one : split(text, ',')) {
    const std::vector<std::string> parts = split(one, ':');
    if (parts.size() < 4 || parts.size() > 5) refuse(one);
    Fault fault{number_or_all(parts[0], one), number_or_all(parts[1], one), parts[2], parts[3]};
    if (parts.size() == 5) fault.seconds = std::atof(parts[4].c_str());
    faults.push_back(fault);
  }
  return faults;
}

uint16_t port_of(int fd, decltype(&getpeername) which) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (which(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return 0;
}

// What a broken network does to a process: its established connections end, on both sides.
void cut_connections() {
  const uint16_t store_port = read_launch_env().master_port;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    const uint16_t peer = port_of(fd, getpeername);
    if (peer == 0 || peer == store_port || port_of(fd, getsockname) == store_port) continue;
    shutdown(fd, SHUT_RDWR);
  }
  closedir(folder);
}

void act(const Fault& fault, Rank rank, int64_t step) {
  if (fault.action == "kill") raise(SIGKILL);
  if (fault.action == "stop") {
    raise(SIGSTOP);
  } else if (fault.action == "term") {
    raise(SIGTERM);
  } else if (fault.action == "cut") {
    cut_connections();
  } else if (fault.action == "hang") {
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
  } else if (fault.action == "slow") {
    std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
  } else if (fault.action == "fail") {
    throw RunError(fmt::format("[fault] rank {}: failed on purpose in {} (step {})", rank.value(), fault.stage, step));
  } else if (fault.action == "oom") {
    throw std::bad_alloc();
  } else if (fault.action == "exit") {
    _exit(5);
  } else {
    refuse(fault.action);
  }
}

}  // namespace

void inject_fault(Rank rank, int64_t step, std::string_view stage) {
  static const std::vector<Fault> faults = read_faults();
  for (const Fault& fault : faults) {
    if (fault.rank.value_or(rank.value()) != rank.value() || fault.step.value_or(step) != step) continue;
    if (fault.stage == stage) act(fault, rank, step);
  }
}

}  // namespace ringfold
