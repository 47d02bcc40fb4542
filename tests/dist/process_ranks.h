// Ranks as forked processes over a real TCPStore, for tests of death and silence. Each body reports by returning a text
// (or by the message of what it throws); it may call ready() to tell the test that it has come to the interesting part.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "ringfold/mesh/launch_env.h"

namespace ringfold {

class ProcessRanks {
 public:
  using Body = std::function<std::string(const LaunchEnv& env, const std::function<void()>& ready)>;

  // The store lives in this process, as it does in the launcher's.
  ProcessRanks(int world, const Body& body) {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    LaunchEnv env;
    env.world_size = env.local_world_size = world;
    env.master_port = store_->getPort();
    env.launcher_owns_store = true;
    start(env, body);
  }
  // The store as `env` says: rank 0 listens on env.master_port.
  ProcessRanks(LaunchEnv env, const Body& body) { start(env, body); }

  ~ProcessRanks() {
    for (const Child& child : children_) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
      close(child.output);
    }
  }
  ProcessRanks(const ProcessRanks&) = delete;
  ProcessRanks& operator=(const ProcessRanks&) = delete;

  void signal(int rank, int number) const { kill(children_[rank].pid, number); }
  void wait_ready(int rank) { EXPECT_EQ(read_text(rank, 20000, '\n'), "ready\n") << "rank " << rank; }
  // What the rank reported, or "nothing" when it is still silent after the limit.
  std::string report(int rank, int limit_ms) { return read_text(rank, limit_ms, '\0'); }

 private:
  struct Child {
    pid_t pid;
    int output;
  };

  void start(LaunchEnv env, const Body& body) {
    for (int rank = 0; rank < env.world_size; ++rank) {
      env.rank = Rank(rank);
      env.local_rank = rank;
      int ends[2];
      if (pipe(ends) != 0) throw std::runtime_error("pipe");
      const pid_t pid = fork();
      if (pid == 0) {
        close(ends[0]);
        run_child(env, body, ends[1]);
      }
      close(ends[1]);
      children_.push_back({pid, ends[0]});
    }
  }

  [[noreturn]] static void run_child(const LaunchEnv& env, const Body& body, int output) {
    at::set_num_threads(1);
    std::string text;
    try {
      text = body(env, [&] { write_text(output, "ready\n"); });
    } catch (const std::exception& error) {
      text = error.what();
    }
    text.push_back('\0');
    write_text(output, text);
    // No destructors: the connections close as they do when a process dies.
    _exit(0);
  }

  static void write_text(int fd, const std::string& text) {
    if (write(fd, text.data(), text.size()) < 0) _exit(1);
  }

  std::string read_text(int rank, int limit_ms, char end) {
    std::string text;
    pollfd waiting{children_[rank].output, POLLIN, 0};
    char byte = 0;
    while (poll(&waiting, 1, limit_ms) == 1 && read(waiting.fd, &byte, 1) == 1) {
      if (byte == end && end == '\0') return text;
      text.push_back(byte);
      if (byte == end) return text;
    }
    return text.empty() ? "nothing" : text;
  }

  c10::intrusive_ptr<c10d::TCPStore> store_;
  std::vector<Child> children_;
};

}  // namespace ringfold
