#include "ringfold/rollout/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>
#include <vector>

extern char** environ;

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{1000}, kInterval{2};

// Its input ends when no process holds the other end any more. $1: the group.
constexpr const char* kGuard = R"(read -r end; kill -s TERM -- "-$1"; sleep 1; kill -s KILL -- "-$1")";

// What posix_spawn is given.
struct Spawning {
  Spawning() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~Spawning() {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }
  Spawning(const Spawning&) = delete;
  Spawning& operator=(const Spawning&) = delete;

  // `sh -c WORDS`; an errno.
  int shell(std::vector<std::string> words, pid_t& pid) {
    // Not the sockets of this process: a program that outlives it would keep its peers waiting.
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    words.insert(words.begin(), {"sh", "-c"});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    return posix_spawn(&pid, "/bin/sh", &actions, &attributes, arguments.data(), environ);
  }

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

int start_command(const std::string& command, int socket, pid_t& pid) {
  Spawning spawning;
  posix_spawn_file_actions_adddup2(&spawning.actions, socket, 0);
  posix_spawn_file_actions_adddup2(&spawning.actions, socket, 1);
  posix_spawnattr_setflags(&spawning.attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&spawning.attributes, 0);
  return spawning.shell({command}, pid);
}

int start_guard(int lifeline, pid_t group, pid_t& pid) {
  Spawning spawning;
  posix_spawn_file_actions_adddup2(&spawning.actions, lifeline, 0);
  // Whoever reads this process's output until its end shall not wait for the guard.
  posix_spawn_file_actions_addopen(&spawning.actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&spawning.actions, 1, 2);
  // What ends a whole job by signals must not take the guard away.
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&blocked, signal);
  posix_spawnattr_setsigmask(&spawning.attributes, &blocked);
  posix_spawnattr_setflags(&spawning.attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  return spawning.shell({kGuard, "sh", std::to_string(group)}, pid);
}

[[noreturn]] void fail(int error) {
  throw std::system_error(error, std::generic_category());
}

}  // namespace

Subprocess::Subprocess(const std::string& command) {
  int sockets[2], pipe[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) fail(errno);
  socket_ = sockets[0];
  int error = start_command(command, sockets[1], leader_);
  close(sockets[1]);
  if (error != 0) {
    close(socket_);
    fail(error);
  }
  if (pipe2(pipe, O_CLOEXEC) == 0) {
    lifeline_ = pipe[1];
    error = start_guard(pipe[0], leader_, guard_);
    close(pipe[0]);
  } else {
    error = errno;
  }
  if (error != 0) {
    end_group();
    fail(error);
  }
}

Subprocess::~Subprocess() {
  end_group();
}

std::optional<Subprocess::End> Subprocess::wait(std::chrono::milliseconds limit) const {
  const auto deadline = Clock::now() + limit;
  while (true) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(leader_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == leader_) {
      return End{info.si_code != CLD_EXITED, info.si_status};
    }
    if (Clock::now() > deadline) return std::nullopt;
    std::this_thread::sleep_for(kInterval);
  }
}

void Subprocess::end_group() {
  close(socket_);
  kill(-leader_, SIGTERM);
  const auto deadline = Clock::now() + kPatience;
  bool reaped = false, gone = false;
  while (!gone && Clock::now() <= deadline) {
    reaped = reaped || waitpid(leader_, nullptr, WNOHANG) == leader_;
    // The number is the group's as long as it has a member, reaped leader or not.
    gone = reaped && kill(-leader_, 0) != 0;
    if (!gone) std::this_thread::sleep_for(kInterval);
  }
  if (!gone) kill(-leader_, SIGKILL);  // some do not listen, or leave children behind that do not
  if (!reaped) waitpid(leader_, nullptr, 0);
  if (guard_ > 0) {
    kill(guard_, SIGKILL);
    waitpid(guard_, nullptr, 0);
  }
  if (lifeline_ >= 0) close(lifeline_);
}

}  // namespace ringfold
