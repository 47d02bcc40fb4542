// Failures, in three kinds that are never mixed (ARCHITECTURE.md, "Failures"):
//   wrong input or a failed run -> an Error with the exit code the process will end with;
//   infeasible                  -> an ordinary return value that carries the reason (see Result);
//   our own bug                 -> RINGFOLD_ASSERT, which no input can reach.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace ringfold {

// Exit codes of the binary; 128 + n after signal n.
enum class ExitCode : int {
  kOk = 0,
  kDifference = 1,  // parity or doctor found a difference
  kUsage = 2,       // usage, configuration or data
  kNoPlan = 3,      // a limit given by flag leaves no plan
  kFailure = 4,     // run-time failure (a dead peer, out of memory, disk full)
};

// Message form: "[component] what: got X, expected Y. Hint: ...". Printed as one line "ringfold: error: <message>":
// whatever outside text it shows, it has no control characters; line ends and tabs become spaces, others '?'.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string message);
  ExitCode exit_code() const { return code_; }

 private:
  ExitCode code_;
};

// A flag, a recipe or the environment is wrong.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ExitCode::kUsage, message) {}
};

// A file that the user brought is wrong: names the file, and the line, sample or tensor.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(ExitCode::kUsage, message) {}
};

// The run failed on the way: names rank, operation and step where they are known.
class RunError : public Error {
 public:
  explicit RunError(const std::string& message) : Error(ExitCode::kFailure, message) {}
};

// A peer was lost or did not answer in time. Kept apart from RunError because it is usually the echo of another rank's
// failure: a launcher shows the cause, not the echoes. A rank that gave up a silent peer is no echo.
class PeerError : public RunError {
 public:
  explicit PeerError(const std::string& message, bool echo = true) : RunError(message), echo_(echo) {}
  bool is_echo() const { return echo_; }

 private:
  bool echo_;
};

// A value, or the reason why there is none.
template <typename T>
class Result {
 public:
  Result(T value) : state_(std::move(value)) {}  // NOLINT: implicit on purpose
  static Result infeasible(std::string reason) { return Result(Reason{std::move(reason)}); }
  bool ok() const { return std::holds_alternative<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  const std::string& reason() const { return std::get<Reason>(state_).text; }

 private:
  struct Reason {
    std::string text;
  };
  explicit Result(Reason reason) : state_(std::move(reason)) {}
  std::variant<T, Reason> state_;
};

// Prints the condition, the place and the message, then aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, const std::string& message);

#define RINGFOLD_ASSERT(condition, message)                                                  \
  do {                                                                                       \
    if (!(condition)) ::ringfold::assertion_failed(#condition, __FILE__, __LINE__, message); \
  } while (false)

}  // namespace ringfold
