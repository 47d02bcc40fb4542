#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "ringfold/base/error.h"
#include "ringfold/rollout/reward.h"
#include "ringfold/rollout/subprocess.h"

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

class ProgramReward : public RewardModel {
 public:
  ProgramReward(std::string command, std::shared_ptr<const Tokenizer> tokenizer, double timeout_seconds)
      : command_(std::move(command)), tokenizer_(std::move(tokenizer)), timeout_seconds_(timeout_seconds) {
    try {
      program_.emplace(command_);
    } catch (const std::system_error& error) {
      fail(fmt::format("cannot be started: {}", error.code().message()), "is there a /bin/sh, and room for a process?");
    }
  }

  double score(const RewardRequest& request) override {
    require_silence();
    return reward_of(answer_to(line_of(request)), request);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint) const {
    throw RunError(fmt::format("[rollout] --rm-program '{}': {}. Hint: {}", command_, what, hint));
  }
  [[noreturn]] void fail_ended() const {
    const auto end = program_->wait(std::chrono::seconds(1));
    if (!end) {
      fail("it closed its output before it had answered", "it shall answer every line on stdout, and leave at the end");
    }
    fail(end->by_signal ? fmt::format("it ended by signal {} before it had answered", end->number)
                        : fmt::format("it ended with code {} before it had answered", end->number),
         "run it by hand on one line; its messages are on stderr");
  }
  [[noreturn]] void fail_unasked() const {
    fail(fmt::format("got '{}' unasked, expected one line for each that it is given", start_of(received_)),
         "messages go to stderr");
  }
  [[noreturn]] void fail_late(bool sent) const {
    if (!sent) {
      fail(fmt::format("it did not read its line within {:g} s", timeout_seconds_),
           "it shall read each line to its end. Or raise --comm-timeout-seconds");
    }
    fail(fmt::format("no answer within {:g} s", timeout_seconds_),
         "does it flush its output after each line? Or raise --comm-timeout-seconds");
  }

  // What has come by now; without waiting. False: nothing will come any more.
  bool receive() {
    char buffer[4096];
    const ssize_t bytes = recv(program_->socket(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    received_.append(buffer, static_cast<size_t>(bytes));
    return bytes > 0;
  }

  // An answer too many would be taken for that to the next request.
  void require_silence() {
    receive();  // an end is told by what follows
    if (!received_.empty()) fail_unasked();
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

  // One deadline for reading and answering. It may write before it has read all: both directions are served, so that it
  // never waits for this process to read.
  std::string answer_to(const std::string& line) {
    const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_seconds_);
    size_t sent = 0;
    while (true) {
      const bool all_sent = sent == line.size();
      const size_t end = received_.find('\n');
      if (end != std::string::npos || received_.size() >= kLongestLine) {
        if (!all_sent) fail_unasked();  // nobody can answer what is not said yet
        const std::string answer = received_.substr(0, end);
        received_.erase(0, answer.size() + 1);
        return answer;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd wait{program_->socket(), static_cast<short>(all_sent ? POLLIN : POLLIN | POLLOUT), 0};
      // Once more after the deadline: the answer may have come while this process was stopped.
      const int ready = poll(&wait, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) fail_late(all_sent);
      if ((wait.revents & ~POLLOUT) == 0) {
        sent += send_some(std::string_view(line).substr(sent));
      } else if (!receive()) {
        fail_ended();
      }
    }
  }

  size_t send_some(std::string_view text) const {
    const ssize_t bytes = send(program_->socket(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes >= 0) return static_cast<size_t>(bytes);
    if (errno != EAGAIN && errno != EINTR) fail_ended();
    return 0;
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

  static constexpr size_t kLongestLine = 1 << 20;

  std::string command_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  double timeout_seconds_;
  std::optional<Subprocess> program_;
  std::string received_;
};

}  // namespace

std::unique_ptr<RewardModel> make_program_reward(const std::string& command, std::shared_ptr<const Tokenizer> tokenizer,
                                                 double timeout_seconds) {
  return std::make_unique<ProgramReward>(command, std::move(tokenizer), timeout_seconds);
}

}  // namespace ringfold
