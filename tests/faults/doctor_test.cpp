// `ringfold doctor` on well and on unwell machines.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "faults/job.h"

namespace ringfold {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::MatchesRegex;

class Doctor : public Job {
 protected:
  struct Visit {
    int code;
    std::string output, errors;
  };
  Visit visit(const Strings& command, const Variables& environment = {}, const std::function<void()>& limits = {}) {
    Process process(folder_, "doctor", command, environment, limits);
    const int code = process.wait(kHangSeconds);
    return {code, process.output(), process.errors()};
  }
  Strings doctor(const Strings& flags = {}) const { return Strings{RINGFOLD_BINARY, "doctor"} + flags; }
};

TEST_F(Doctor, finds_a_well_machine_ready) {
  const Visit visited = visit(doctor({"--output-dir", folder_ / "run"}));
  EXPECT_EQ(visited.code, 0) << visited.output << visited.errors;
  for (const char* check :
       {"loopback", "versions", "devices", "cores", "memory", "shared memory", "open files", "output folder"}) {
    EXPECT_THAT(visited.output, HasSubstr(check));
  }
  EXPECT_THAT(visited.output, HasSubstr("two processes sum 4 MiB in "));
  EXPECT_TRUE(visited.output.ends_with("doctor: ready\n"));
  EXPECT_EQ(visited.errors, "");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(Doctor, speaks_json) {
  const Visit visited = visit(doctor({"--json"}));
  const json result = json::parse(visited.output);
  EXPECT_EQ(result["schema"], 1);
  EXPECT_EQ(result["ok"], visited.code == 0);
  for (const json& check : result["checks"]) {
    EXPECT_THAT(check["health"].get<std::string>(), testing::AnyOf("ok", "note", "problem"));
    EXPECT_EQ(check.contains("advice"), check["health"] != "ok") << check;
  }
}

TEST_F(Doctor, says_how_to_raise_the_limit_of_open_files) {
  const Visit visited = visit(doctor(), {}, [] {
    const rlimit few{40, 4096};
    setrlimit(RLIMIT_NOFILE, &few);
  });
  EXPECT_EQ(visited.code, 1) << visited.output << visited.errors;
  EXPECT_THAT(visited.output, HasSubstr("problem  open files     limit 40; 16 ranks need about 96\n"
                                        "                        -> ulimit -n 192\n"));
  EXPECT_TRUE(visited.output.ends_with("doctor: not ready\n"));
}

TEST_F(Doctor, finds_an_output_folder_that_cannot_be_written) {
  const Visit visited = visit(doctor({"--output-dir", "/proc/run"}));
  EXPECT_EQ(visited.code, 1);
  EXPECT_THAT(visited.output, HasSubstr("problem  output folder  /proc: cannot write there: "));
}

TEST_F(Doctor, examines_a_whole_job) {
  const Visit visited = visit({RINGFOLD_BINARY, "launch", "-n", "3", "--", "doctor", "--output-dir", folder_ / "run"});
  EXPECT_EQ(visited.code, 0) << visited.output << visited.errors;
  EXPECT_THAT(visited.output, HasSubstr("store          3 ranks met at 127.0.0.1:"));
  EXPECT_THAT(visited.output, HasSubstr("connections    every rank reaches every other"));
  EXPECT_THAT(visited.output, HasSubstr("clocks         3 ranks differ by at most 0."));
  EXPECT_THAT(visited.output, HasSubstr("3 rank(s) on this machine"));
}

TEST_F(Doctor, says_when_there_are_more_threads_than_cores) {
  const Visit visited = visit(doctor(), {{"OMP_NUM_THREADS", "4000"}});
  EXPECT_EQ(visited.code, 0) << visited.output << visited.errors;
  EXPECT_THAT(visited.output, HasSubstr("note     cores "));
  EXPECT_THAT(visited.output, HasSubstr("more threads than cores slow every rank down: set OMP_NUM_THREADS="));
}

TEST_F(Doctor, a_store_that_is_not_there_is_told_with_its_address) {
  const std::string port = std::to_string(free_port());
  const Visit visited =
      visit(doctor({"--comm-timeout-seconds", "2"}),
            {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
  EXPECT_EQ(visited.code, 1);
  EXPECT_THAT(visited.output,
              HasSubstr("problem  job            [mesh] rank 0: doctor: got no word from rank(s) 1, expected "
                        "all 2 ranks within 2 s; rank 1 never came."));
}

}  // namespace
}  // namespace ringfold
