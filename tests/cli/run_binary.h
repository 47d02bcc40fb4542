// Runs the real binary (RINGFOLD_BINARY) and collects what it says.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ringfold {

using Arguments = std::vector<std::string>;

inline Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Outcome {
  int code = -1;
  std::string out, err;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string write_temp(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "ringfold_cli_" + std::to_string(getpid()) + "_" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// `environment` is added to a clean one: no launcher's variables from outside.
inline Outcome run_binary(const Arguments& arguments,
                          const std::vector<std::pair<std::string, std::string>>& environment = {}) {
  const std::string out = write_temp("out", ""), err = write_temp("err", "");
  const pid_t child = fork();
  if (child == 0) {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
      unsetenv(name);
    }
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    dup2(open(out.c_str(), O_WRONLY | O_TRUNC), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_TRUNC), STDERR_FILENO);
    std::vector<char*> argv = {const_cast<char*>(RINGFOLD_BINARY)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(RINGFOLD_BINARY, argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(out),
                        read_file(err)};
  std::remove(out.c_str());
  std::remove(err.c_str());
  return outcome;
}

// A refusal: exit code 2 and one line on stderr. Returns that line without "ringfold: error: " and its end.
inline std::string refusal(const Arguments& arguments, int code = 2) {
  const Outcome outcome = run_binary(arguments);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const std::string head = "ringfold: error: ";
  EXPECT_TRUE(outcome.err.starts_with(head)) << outcome.err;
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  return outcome.err.size() > head.size() ? outcome.err.substr(head.size(), outcome.err.size() - head.size() - 1) : "";
}

}  // namespace ringfold
