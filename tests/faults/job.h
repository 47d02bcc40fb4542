// Whole jobs of the real binary on a tiny model, started in the ways that users start them, and what came of them.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cli/run_binary.h"

namespace ringfold {

using Strings = Arguments;
using Variables = std::vector<std::pair<std::string, std::string>>;

inline std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline Strings lines_of(const std::string& text) {
  Strings lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The seconds in "after 3.1 s" of a message: how long a rank waited, however long the start took. -1: none.
inline double waited_seconds(const std::string& message) {
  for (size_t at = message.find("after "); at != std::string::npos; at = message.find("after ", at + 1)) {
    const char* begin = message.c_str() + at + 6;
    char* end = nullptr;
    const double seconds = std::strtod(begin, &end);
    if (end != begin && std::string_view(end).starts_with(" s")) return seconds;
  }
  return -1;
}

// Somebody of a process group is left (zombies do not count: they run nothing).
inline bool group_lives(int number) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::istringstream stat(text_of(entry.path() / "stat"));
    std::string pid, name, state;
    int parent = 0, group = 0;
    if (stat >> pid >> name >> state >> parent >> group && group == number && state != "Z" && state != "X") return true;
  }
  return false;
}

// One started process; its stderr and stdout lie in files. It leads a process group of its own.
class Process {
  using Clock = std::chrono::steady_clock;

 public:
  // `limits` is called in the child before the program starts.
  Process(const std::filesystem::path& folder, const std::string& name, const Strings& command,
          const Variables& environment, const std::function<void()>& limits = {})
      : errors_(folder / (name + ".err")), output_(folder / (name + ".out")), begin_(Clock::now()) {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    setpgid(0, 0);
    for (const char* variable :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
      unsetenv(variable);
    }
    setenv("OMP_NUM_THREADS", "1", 1);
    for (const auto& [variable, value] : environment) setenv(variable.c_str(), value.c_str(), 1);
    dup2(open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(errors_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    if (limits) limits();
    execvp(argv[0], argv.data());
    _exit(127);
  }
  ~Process() { end(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The exit code, 128 + n after signal n; -1 when it is still running after the limit.
  int wait(double limit_seconds) {
    while (code_ < 0 && seconds() < limit_seconds) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    return code_;
  }
  void signal(int number) const { kill(pid_, number); }
  void signal_group(int number) const { kill(-pid_, number); }
  bool left_somebody() const { return group_lives(pid_); }
  // What went wrong: stderr without the start-up table.
  std::string errors() const {
    std::string text;
    for (const std::string& line : lines_of(text_of(errors_))) {
      if (!line.starts_with("|") && !line.starts_with("+-")) text += line + "\n";
    }
    return text;
  }
  std::string output() const { return text_of(output_); }
  std::string table_and_errors() const { return text_of(errors_); }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  void end() {
    kill(-pid_, SIGKILL);
    if (code_ < 0) waitpid(pid_, nullptr, 0);
  }

  std::filesystem::path errors_, output_;
  Clock::time_point begin_;
  pid_t pid_ = -1;
  int code_ = -1;
};

// A folder with a tiny model and data whose steps hold packs of one, two and four ranks, and the flags to train on it.
class Job : public ::testing::Test {
 protected:
  static constexpr int kRanks = 4;
  // Far above what a job takes when nothing hangs.
  static constexpr double kHangSeconds = 90;

  Job() : folder_(std::filesystem::temp_directory_path() / fmt::format("ringfold_job_{}", getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json")
        << R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 61, "hidden_size": 16,
 "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
 "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": true, "hidden_act": "silu",
 "max_position_embeddings": 4096})";
    write_data("data.jsonl", 1);
  }
  ~Job() override { std::filesystem::remove_all(folder_); }

  void write_data(const std::string& name, int seed) const {
    std::ofstream file(folder_ / name);
    for (const int length : {100, 30, 30, 30, 30, 60, 50, 20, 110, 25, 25, 25, 25, 55, 45, 15}) {
      file << R"({"tokens": [)";
      for (int t = 0; t < length; ++t) file << (t == 0 ? "" : ", ") << (t * 7 + length * seed) % 61;
      file << "]}\n";
    }
  }

  Strings train_flags(const Strings& more = {}) const {
    Strings flags = {"train",
                     "--model-config",
                     folder_ / "config.json",
                     "--data",
                     folder_ / "data.jsonl",
                     "--output-dir",
                     folder_ / "run",
                     "--max-steps",
                     "3",
                     "--global-batch-size",
                     "8",
                     "--no-shuffle",
                     "--dynamic-context-parallel",
                     "--use-dynamic-batch-size",
                     "--calculate-per-token-loss",
                     "--rollout-max-context-len",
                     "128",
                     "--max-tokens-per-gpu",
                     "32",
                     "--lr",
                     "1e-3",
                     "--no-progress",
                     "--log-level",
                     "warning"};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }
  static Strings timeout(double seconds) { return {"--comm-timeout-seconds", fmt::format("{}", seconds)}; }

  // `ringfold launch -n 4 -- train ...`
  Strings launched(const Strings& flags) const {
    Strings command = {RINGFOLD_BINARY, "launch", "-n", std::to_string(kRanks), "--"};
    command.insert(command.end(), flags.begin(), flags.end());
    return command;
  }

  std::filesystem::path folder_;
};

// Below the ports that the kernel hands out; tests that run at the same time have their own eight.
inline int free_port() {
  for (int port = 10000 + getpid() % 2500 * 8;; ++port) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (free) return port;
  }
}

}  // namespace ringfold
