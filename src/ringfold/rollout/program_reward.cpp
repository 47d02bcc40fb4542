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
    kill(child_, SIGTERM);
    waitpid(child_, nullptr, 0);
  }

  std::vector<double> score(const std::vector<RewardRequest>& requests) override {
    std::vector<double> rewards;
    for (const RewardRequest& request : requests) {
      send_line(line_of(request));
      rewards.push_back(reward_of(receive_line(), request));
    }
    return rewards;
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint) const {
    throw RunError(fmt::format("[rollout] --rm-program '{}': {}. Hint: {}", command_, what, hint));
  }
  [[noreturn]] void fail_ended() const {
    fail("it ended before it had answered", "run it by hand on one line; its messages are on stderr");
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
    std::string shell = "sh", flag = "-c";
    char* const arguments[] = {shell.data(), flag.data(), command_.data(), nullptr};
    const int error = posix_spawn(&child_, "/bin/sh", &actions, nullptr, arguments, environ);
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

  void send_line(const std::string& line) const {
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
    while ((end = received_.find('\n')) == std::string::npos) {
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
    received_.erase(0, end + 1);
    return line;
  }

  double reward_of(const std::string& line, const RewardRequest& request) const {
    const auto answer = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (answer.is_object() && answer.contains("reward") && answer["reward"].is_number()) {
      const auto reward = answer["reward"].get<double>();
      if (std::isfinite(reward)) return reward;
    }
    fail(fmt::format("prompt {}: got '{}', expected a line such as {{\"reward\": 1}}", request.prompt_id,
                     line.substr(0, 200)),
         "one finite number for each line it is given, and nothing else on stdout");
  }

  std::string command_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  double timeout_seconds_;
  pid_t child_ = -1;
  int socket_ = -1;
  std::string received_;
};

}  // namespace

std::unique_ptr<RewardModel> make_program_reward(const std::string& command, std::shared_ptr<const Tokenizer> tokenizer,
                                                 double timeout_seconds) {
  return std::make_unique<ProgramReward>(command, std::move(tokenizer), timeout_seconds);
}

}  // namespace ringfold
