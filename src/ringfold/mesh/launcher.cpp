#include "ringfold/mesh/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "ringfold/base/error.h"
#include "ringfold/mesh/beat.h"

extern char** environ;

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

// An exit that may be an echo waits this long for the signal that was its cause.
constexpr std::chrono::milliseconds kCauseWindow{1000};
constexpr std::chrono::seconds kKillDelay{5};
// A rank that has told a failure ends by itself within kEndLimit (mesh/process_end.h); a kernel or a driver may keep
// it.
constexpr std::chrono::seconds kSpokenLimit{20};
// A process that has not ended so long after SIGKILL hangs in the kernel.
constexpr std::chrono::seconds kReapLimit{10};
constexpr int kCannotRun = 127;

struct Child {
  int rank;
  pid_t pid;
  bool running = true;
};

// How a rank ended, when not with code 0.
struct Failure {
  int rank;
  pid_t pid;
  int status;  // of waitpid

  bool by_signal() const { return WIFSIGNALED(status); }
  int code() const { return by_signal() ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }
};

int usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

// SIGINT, SIGTERM and SIGCHLD stay blocked while the launcher lives and are taken by sigtimedwait; SIGPIPE, which the
// store meets when a rank dies, is ignored. Ranks get back what was before.
class SignalQueue {
 public:
  SignalQueue() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
    pipe_before_ = std::signal(SIGPIPE, SIG_IGN);
  }
  ~SignalQueue() {
    // A late SIGTERM of our own making must not end the caller after all.
    timespec now{};
    while (sigtimedwait(&signals_, nullptr, &now) > 0) {
    }
    restore();
  }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  std::optional<siginfo_t> next(std::chrono::milliseconds limit) const {
    siginfo_t info{};
    const timespec wait{limit.count() / 1000, limit.count() % 1000 * 1000000};
    if (sigtimedwait(&signals_, &info, &wait) <= 0) return std::nullopt;
    return info;
  }
  void restore() const {
    std::signal(SIGPIPE, pipe_before_);
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }

 private:
  sigset_t signals_;
  sigset_t mask_before_;
  void (*pipe_before_)(int) = SIG_DFL;
};

// The pipe with one byte in it; see mesh/failure.h.
class Voice {
 public:
  Voice() {
    if (pipe2(ends_, O_NONBLOCK) != 0 || write(ends_[1], "v", 1) != 1) {
      throw RunError(
          fmt::format("[launch] pipe: got '{}', expected a pipe. Hint: raise the limit of open files "
                      "(ulimit -n).",
                      std::strerror(errno)));
    }
    fcntl(ends_[1], F_SETFD, FD_CLOEXEC);
  }
  ~Voice() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Voice(const Voice&) = delete;
  Voice& operator=(const Voice&) = delete;

  int fd() const { return ends_[0]; }
  // False: a rank has spoken.
  bool take() const {
    char voice = 0;
    return read(ends_[0], &voice, 1) == 1;
  }
  bool is_taken() const {
    int left = 0;
    return ioctl(ends_[0], FIONREAD, &left) == 0 && left == 0;
  }

 private:
  int ends_[2] = {-1, -1};
};

// Strings for execve, made before the fork: a child of a process with threads may not allocate.
class StringArray {
 public:
  explicit StringArray(std::vector<std::string> strings) : strings_(std::move(strings)) {
    for (std::string& string : strings_) pointers_.push_back(string.data());
    pointers_.push_back(nullptr);
  }
  StringArray(const StringArray&) = delete;
  StringArray& operator=(const StringArray&) = delete;
  char** data() { return pointers_.data(); }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_;
};

std::vector<std::string> rank_environment(const LaunchRequest& request, int rank, uint16_t port, int voice_fd) {
  std::vector<std::pair<std::string, std::string>> contract = {
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(request.ranks)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(request.ranks)},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(port)},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"RINGFOLD_LAUNCH", "1"},
      {"RINGFOLD_LAUNCH_VOICE", std::to_string(voice_fd)},
  };
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    contract.emplace_back("OMP_NUM_THREADS", std::to_string(std::max(1, usable_cores() / request.ranks)));
  }
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = std::string_view(*entry).substr(0, std::string_view(*entry).find('='));
    const bool replaced =
        std::any_of(contract.begin(), contract.end(), [&](const auto& own) { return own.first == name; });
    if (!replaced) result.emplace_back(*entry);
  }
  for (const auto& [name, value] : contract) result.push_back(name + "=" + value);
  return result;
}

class Job {
 public:
  explicit Job(const LaunchRequest& request) : request_(request) {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    beats_ = c10::make_intrusive<c10d::PrefixStore>(store_prefix(0), store_);
  }

  // An exception on the way must leave no rank behind.
  ~Job() {
    if (running() == 0) return;
    signal_all(SIGKILL);
    // wait() has given up already when it has sent signals.
    const auto limit = Clock::now() + (term_sent_ ? std::chrono::seconds(0) : kReapLimit);
    while (running() > 0 && Clock::now() < limit) {
      reap();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void start() {
    for (int rank = 0; rank < request_.ranks; ++rank) start_rank(rank);
  }

  int wait() {
    while (running() > 0 && !(term_sent_ && Clock::now() >= *term_sent_ + kKillDelay + kReapLimit)) {
      const auto signal = signals_.next(next_wake());
      if (signal && signal->si_signo != SIGCHLD) pass_on(*signal);
      reap();
      stop_the_others();
    }
    report();
    if (failure_) return failure_->code();
    return term_sent_ ? static_cast<int>(ExitCode::kFailure) : 0;
  }

 private:
  int running() const {
    return static_cast<int>(std::count_if(children_.begin(), children_.end(), [](const auto& c) { return c.running; }));
  }

  void start_rank(int rank) {
    StringArray argv(request_.argv);
    StringArray environment(rank_environment(request_, rank, store_->getPort(), voice_.fd()));
    const std::string refusal = fmt::format(
        "ringfold: error: [launch] cannot run '{}'. Hint: give an existing, "
        "executable program.\n",
        request_.program);
    const pid_t launcher = getpid();
    const pid_t pid = fork();
    if (pid < 0) {
      throw RunError(
          fmt::format("[launch] rank {}: got '{}' from fork, expected a process. Hint: raise the limit of "
                      "processes (ulimit -u) or start fewer ranks.",
                      rank, std::strerror(errno)));
    }
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      // The launcher may have died before the line above.
      if (getppid() != launcher) _exit(kCannotRun);
      signals_.restore();
      execvpe(request_.program.c_str(), argv.data(), environment.data());
      if (voice_.take() && write(STDERR_FILENO, refusal.data(), refusal.size()) < 0) _exit(kCannotRun);
      _exit(kCannotRun);
    }
    children_.push_back({rank, pid});
  }

  void signal_all(int signal) const {
    for (const Child& child : children_) {
      if (child.running) kill(child.pid, signal);
    }
  }

  void pass_on(const siginfo_t& signal) {
    stopping_ = true;
    // Ctrl-C in a terminal reaches the whole process group by itself; a second copy would mean "at once" to the ranks.
    if (signal.si_code != SI_KERNEL) signal_all(signal.si_signo);
  }

  void reap() {
    for (Child& child : children_) {
      int status = 0;
      if (!child.running || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.running = false;
      const Failure failure{child.rank, child.pid, status};
      // After our own SIGTERM the end of a rank tells nothing new.
      if (failure.code() == 0 || term_sent_) continue;
      // The ranks have agreed to stop after a signal to one of them; the others are still saving.
      if (!failure.by_signal() && failure.code() > 128) stopping_ = true;
      // The stop failed: a rank that it waits for may be stuck.
      if (!failure_ && !failure.by_signal() && failure.code() < 128) stopping_ = false;
      if (!failure_ || (failure.by_signal() && !failure_->by_signal() && !stopping_)) failure_ = failure;
      if (!failed_at_) failed_at_ = Clock::now();
    }
  }

  // A rank has told a failure, to the user or to the others, and yet none has ended.
  bool hangs_after_failure(Clock::time_point now) {
    if (failure_) return false;
    if (!spoken_at_ && (voice_.is_taken() || beats_->check({kNoteKey}))) spoken_at_ = now;
    return spoken_at_ && now >= *spoken_at_ + kSpokenLimit;
  }

  void stop_the_others() {
    if (running() == 0) return;
    const auto now = Clock::now();
    if (!term_sent_ && hangs_after_failure(now)) term_sent_ = now;
    // A stop that the user asked for takes its time: the ranks write a checkpoint.
    if (!term_sent_ && (!failure_ || stopping_)) return;
    if (!term_sent_ && (failure_->by_signal() || now >= *failed_at_ + kCauseWindow)) {
      unexplained_ = voice_.take();
      term_sent_ = now;
    }
    if (!term_sent_) return;
    // Again and again: a rank that has only noted the first SIGTERM may meet its lost peer later, and then obeys. A
    // stopped rank acts when it goes on.
    signal_all(now >= *term_sent_ + kKillDelay ? SIGKILL : SIGTERM);
    signal_all(SIGCONT);
  }

  std::chrono::milliseconds next_wake() const {
    if (!term_sent_ && (!failure_ || stopping_)) return std::chrono::seconds(1);
    return std::chrono::milliseconds(50);
  }

  // A rank that is gone cannot say where it was; its last beat does.
  std::string last_seen(int rank) const {
    const BeatReader::Seen seen = BeatReader(Clock::now()).look(*beats_, Rank(rank));
    return seen.came ? ", last seen in " + seen.beat.doing : "";
  }

  // What the rank told the others, where none has told it to the user.
  std::string unspoken_note() const {
    if (!voice_.take() || !beats_->check({kNoteKey})) return "";
    const std::string note = beats_->get_to_str(kNoteKey);
    return fmt::format("ringfold: error: {}\n", note.substr(note.find(' ') + 1));
  }

  void report() const {
    std::string line;
    if (!failure_ && term_sent_) line = unspoken_note();
    if (failure_ && !stopping_) line = end_of_failed_rank();
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
  }

  std::string end_of_failed_rank() const {
    const char* others = request_.ranks > 1 ? "; the other ranks were stopped" : "";
    if (failure_->by_signal()) {
      const int signal = WTERMSIG(failure_->status);
      const char* name = sigabbrev_np(signal);
      const char* hint = signal == SIGKILL
                             ? "SIGKILL without a sender is usually the kernel running out of memory; see "
                               "`dmesg`, or start fewer ranks"
                             : "that rank's own last lines, or a core file, tell more";
      return fmt::format("ringfold: error: [launch] rank {} (pid {}) was killed by signal {} ({}){}{}. Hint: {}.\n",
                         failure_->rank, failure_->pid, signal, name ? fmt::format("SIG{}", name) : "real-time",
                         last_seen(failure_->rank), others, hint);
    }
    if (failure_->code() >= static_cast<int>(ExitCode::kFailure) && (unexplained_ || voice_.take())) {
      // Refusals (1 to 3) say all themselves.
      return fmt::format(
          "ringfold: error: [launch] rank {} (pid {}) ended first, with exit code {} and without a word{}. Hint: that "
          "rank's own last lines, if any, tell more.\n",
          failure_->rank, failure_->pid, failure_->code(), others);
    }
    return "";
  }

  const LaunchRequest& request_;
  SignalQueue signals_;  // before the store, whose threads inherit the mask
  Voice voice_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
  StorePtr beats_;  // the ranks' part of it
  std::vector<Child> children_;
  std::optional<Failure> failure_;  // the one to report and to return
  std::optional<Clock::time_point> failed_at_;
  std::optional<Clock::time_point> spoken_at_;
  std::optional<Clock::time_point> term_sent_;
  bool unexplained_ = false;  // no rank had spoken when the others were ended
  bool stopping_ = false;
};

}  // namespace

int launch_processes(const LaunchRequest& request) {
  if (request.ranks < 1) {
    throw UsageError(fmt::format(
        "[launch] -n: got {}, expected 1 or more ranks. Hint: ringfold launch -n 4 -- train ...", request.ranks));
  }
  if (request.argv.empty()) {
    throw UsageError("[launch] command: got nothing, expected a subcommand. Hint: ringfold launch -n 4 -- train ...");
  }
  Job job(request);
  job.start();
  return job.wait();
}

}  // namespace ringfold
