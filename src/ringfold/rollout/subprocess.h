// A program of the user's that runs beside this process and is talked to.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

namespace ringfold {

// A command started through the shell, with one socket as its stdin and stdout: writing to a program that is gone is an
// error and not a signal. It runs in a process group of its own, so that a Ctrl-C passes it by. The group ends with the
// object: it sees the end of its input and gets SIGTERM, and SIGKILL a second later. Where this process ends without
// destructors (by a signal, _exit), a shell that waits for just that does the same.
class Subprocess {
 public:
  // std::system_error when it cannot be started.
  explicit Subprocess(const std::string& command);
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  int socket() const { return socket_; }

  struct End {
    bool by_signal = false;
    int number = 0;  // the signal, or the exit code
  };
  // How the command ended, at the latest after `limit`; none when it still runs.
  std::optional<End> wait(std::chrono::milliseconds limit) const;

 private:
  void end_group();

  int socket_ = -1;
  int lifeline_ = -1;  // its other end is the guard's stdin
  pid_t leader_ = -1;  // of the group; reaped last, so that its number is nobody else's
  pid_t guard_ = -1;
};

}  // namespace ringfold
