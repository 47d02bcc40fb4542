#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "ringfold/base/error.h"
#include "ringfold/rollout/reward.h"

extern char** environ;

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

class ProgramReward : public RewardModel {
 public:
  ProgramReward(std::string command, std::shared_ptr<const Tokenizer> tokenizer, double timeout_seconds)
      : command_(std::move(command)), tokenizer_(std::move(tokenizer)), timeout_seconds_(timeout_seconds) {
    start();
  }
  ~ProgramReward() override {
    close(socket_);  // the end of its input is the program's sign to leave
    kill(-child_, SIGTERM);
    // Some do not listen.
    if (!ended_ && !wait_for_end(kPatience)) {
      kill(-child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
  }

  double score(const RewardRequest& request) override {
    require_silence();
    send_line(line_of(request));
    return reward_of(receive_line(), request);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint) const {
    throw RunError(fmt::format("[rollout] --rm-program '{}': {}. Hint: {}", command_, what, hint));
  }
  [[noreturn]] void fail_ended() {
    if (!wait_for_end(kPatience)) {
      fail("it closed its output before it had answered", "it shall answer every line on stdout, and leave at the end");
    }
    fail(WIFSIGNALED(*ended_) ? fmt::format("it ended by signal {} before it had answered", WTERMSIG(*ended_))
                              : fmt::format("it ended with code {} before it had answered", WEXITSTATUS(*ended_)),
         "run it by hand on one line; its messages are on stderr");
  }

  // Whether the program has ended, at the latest after `limit`.
  bool wait_for_end(std::chrono::milliseconds limit) {
    const auto deadline = Clock::now() + limit;
    while (!ended_) {
      int status = 0;
      if (waitpid(child_, &status, WNOHANG) == child_) ended_ = status;
      if (ended_ || Clock::now() > deadline) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return ended_.has_value();
  }

  // An answer too many would be taken for that to the next request.
  void require_silence() {
    char buffer[4096];
    const ssize_t bytes = recv(socket_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (bytes > 0) received_.append(buffer, static_cast<size_t>(bytes));
    if (received_.empty()) return;
    fail(fmt::format("got '{}' unasked, expected one line for each that it is given", start_of(received_)),
         "messages go to stderr");
  }

  // A socket is its stdin and stdout, so that writing to a program that is gone is an error and not a signal.
  void start() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      fail(fmt::format("cannot be started: {}", std::strerror(errno)), "are there free file descriptors?");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    // Not the sockets of this rank: a judge that outlives it would keep its peers waiting.
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    // A group of its own: a Ctrl-C, which lets the run end after the rollout, must not take the judge away before that.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    std::string shell = "sh", flag = "-c";
    char* const arguments[] = {shell.data(), flag.data(), command_.data(), nullptr};
    const int error = posix_spawn(&child_, "/bin/sh", &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    socket_ = ends[0];
    if (error != 0) {
      close(socket_);
      fail(fmt::format("cannot be started: {}", std::strerror(error)), "is there a /bin/sh?");
    }
  }

  std::string line_of(const RewardRequest& request) const {
    nlohmann::ordered_json line = {
        {"id", request.prompt_id},
        {"prompt_tokens", std::vector<int64_t>(request.prompt.begin(), request.prompt.end())},
        {"response_tokens", std::vector<int64_t>(request.response.begin(), request.response.end())},
        {"answer_tokens", std::vector<int64_t>(request.answer.begin(), request.answer.end())},
        {"truncated", request.truncated}};
    if (tokenizer_) {
      line["prompt"] = readable_text(*tokenizer_, request.prompt);
      line["response"] = readable_text(*tokenizer_, request.response);
      line["answer"] = readable_text(*tokenizer_, request.answer);
    }
    // A response may end inside a character.
    return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

  void send_line(const std::string& line) {
    for (size_t sent = 0; sent < line.size();) {
      const ssize_t bytes = send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) fail_ended();
      sent += static_cast<size_t>(bytes);
    }
  }

  std::string receive_line() {
    const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_seconds_);
    size_t end = 0;
    while ((end = received_.find('\n')) == std::string::npos && received_.size() < kLongestLine) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd wait{socket_, POLLIN, 0};
      const int ready = left > 0 ? poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, 1 << 30))) : 0;
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) {
        fail(fmt::format("no answer within {:g} s", timeout_seconds_),
             "does it flush its output after each line? Or raise --comm-timeout-seconds");
      }
      char buffer[4096];
      const ssize_t bytes = recv(socket_, buffer, sizeof buffer, 0);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) fail_ended();
      received_.append(buffer, static_cast<size_t>(bytes));
    }
    const std::string line = received_.substr(0, end);
    received_.erase(0, line.size() + 1);
    return line;
  }

  double reward_of(const std::string& line, const RewardRequest& request) const {
    const auto answer = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (answer.is_object() && answer.contains("reward") && answer["reward"].is_number()) {
      const auto reward = answer["reward"].get<double>();
      if (std::isfinite(reward)) return reward;
    }
    fail(fmt::format("prompt {}: got '{}', expected a line such as {{\"reward\": 1}}", request.prompt_id,
                     start_of(line)),
         "one finite number for each line it is given, and nothing else on stdout");
  }

  static std::string start_of(const std::string& text) {
    return text.substr(0, std::min<size_t>(200, text.find('\n')));
  }

  static constexpr std::chrono::milliseconds kPatience{1000};
  static constexpr size_t kLongestLine = 1 << 20;

  std::string command_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  double timeout_seconds_;
  pid_t child_ = -1;
  std::optional<int> ended_;  // the program's status
  int socket_ = -1;
  std::string received_;
};

}  // namespace

std::unique_ptr<RewardModel> make_program_reward(const std::string& command, std::shared_ptr<const Tokenizer> tokenizer,
                                                 double timeout_seconds) {
  return std::make_unique<ProgramReward>(command, std::move(tokenizer), timeout_seconds);
}

}  // namespace ringfold
