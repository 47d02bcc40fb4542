// A process group ends with the object that started it, and with the process that had the object.
#include "ringfold/rollout/subprocess.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

namespace ringfold {
namespace {

using namespace std::chrono_literals;

// Tells the number of a child that neither reads the input nor obeys SIGTERM.
const char* kStubborn = "trap '' TERM; sleep 600 & echo $!; cat > /dev/null";

pid_t told_number(const Subprocess& program) {
  std::string text;
  for (char c = 0; recv(program.socket(), &c, 1, 0) == 1 && c != '\n';) text += c;
  return std::stoi(text);
}

// A zombie runs nothing.
bool runs(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return stat >> number >> name >> state && state != "Z" && state != "X";
}

bool ends(pid_t pid) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (runs(pid) && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(5ms);
  return !runs(pid);
}

TEST(Subprocess, ends_with_all_its_children) {
  pid_t child = 0;
  {
    const Subprocess program(kStubborn);
    child = told_number(program);
    EXPECT_TRUE(runs(child));
  }
  EXPECT_TRUE(ends(child));
}

TEST(Subprocess, ends_when_its_owner_has_no_time_for_destructors) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    const Subprocess program(kStubborn);
    const pid_t child = told_number(program);
    if (write(pipe[1], &child, sizeof child) == sizeof child) raise(SIGKILL);
    _exit(1);
  }
  pid_t child = 0;
  ASSERT_EQ(read(pipe[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  waitpid(owner, nullptr, 0);
  EXPECT_TRUE(ends(child));
  close(pipe[0]);
  close(pipe[1]);
}

TEST(Subprocess, tells_how_its_command_ended) {
  const Subprocess code("exit 3"), signal("kill -9 $$"), none("cat");
  const auto by_code = code.wait(30s), by_signal = signal.wait(30s);
  ASSERT_TRUE(by_code && by_signal);
  EXPECT_FALSE(by_code->by_signal);
  EXPECT_EQ(by_code->number, 3);
  EXPECT_TRUE(by_signal->by_signal);
  EXPECT_EQ(by_signal->number, SIGKILL);
  EXPECT_TRUE(code.wait(0ms)) << "asked again";
  EXPECT_FALSE(none.wait(20ms));
}

}  // namespace
}  // namespace ringfold
