// The launchers that users have: Open MPI's mpirun, torchrun, and srun's variables. Each trains on two ranks and gives
// what `ringfold launch` gives, bit for bit.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "faults/job.h"

namespace ringfold {
namespace {

using testing::HasSubstr;

class Launchers : public Job {
 protected:
  Strings flags(const std::string& run) const {
    return train_flags({"--output-dir", folder_ / run, "--max-tokens-per-gpu", "64"});
  }

  std::vector<double> losses(const std::string& run) const {
    std::vector<double> values;
    for (const std::string& line : lines_of(text_of(folder_ / run / "metrics.jsonl"))) {
      values.push_back(nlohmann::json::parse(line)["loss"]);
    }
    return values;
  }

  std::vector<double> expected() {
    Process job(folder_, "expected", Strings{RINGFOLD_BINARY, "launch", "-n", "2", "--"} + flags("expected"), {});
    EXPECT_EQ(job.wait(kHangSeconds), 0) << job.errors();
    return losses("expected");
  }

  // The program's path, or nothing.
  static std::string find(const std::string& name) {
    std::istringstream path(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");
    for (std::string folder; std::getline(path, folder, ':');) {
      if (access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
    }
    return "";
  }

  // torchrun comes with a full torch installation; the build needs only a part of it.
  static std::string torchrun() {
    const char* given = std::getenv("RINGFOLD_TORCHRUN");
    return given != nullptr ? given : find("torchrun");
  }
};

Variables mpi_variables() {
  return {{"MASTER_PORT", std::to_string(free_port())},
          {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
          {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
          // No name server or other host is needed.
          {"OMPI_MCA_plm_rsh_agent", "/bin/false"}};
}

TEST_F(Launchers, mpirun_trains_as_launch_does) {
  if (find("mpirun").empty()) GTEST_SKIP() << "needs mpirun (Debian package openmpi-bin)";
  Process job(folder_, "mpirun", Strings{"mpirun", "-n", "2", "--oversubscribe", RINGFOLD_BINARY} + flags("run"),
              mpi_variables());
  EXPECT_EQ(job.wait(kHangSeconds), 0) << job.errors();
  EXPECT_EQ(losses("run"), expected());
  EXPECT_EQ(losses("run").size(), 3U);
}

TEST_F(Launchers, a_killed_rank_under_mpirun_is_named_by_the_other) {
  if (find("mpirun").empty()) GTEST_SKIP() << "needs mpirun (Debian package openmpi-bin)";
  Variables variables = mpi_variables();
  variables.emplace_back("RINGFOLD_FAULT", "1:2:forward:fail");
  Process job(folder_, "mpirun",
              Strings{"mpirun", "-n", "2", "--oversubscribe", RINGFOLD_BINARY} + flags("run") +
                  Strings{"--comm-timeout-seconds", "5"},
              variables);
  EXPECT_EQ(job.wait(kHangSeconds), 4) << job.errors();
  EXPECT_THAT(job.errors(), HasSubstr("ringfold: error: [fault] rank 1: failed on purpose in forward (step 2)"));
}

TEST_F(Launchers, torchrun_trains_as_launch_does) {
  if (torchrun().empty()) GTEST_SKIP() << "needs torchrun in PATH or in RINGFOLD_TORCHRUN";
  Process job(
      folder_, "torchrun",
      Strings{torchrun(), "--no-python", "--standalone", "--nproc-per-node", "2", RINGFOLD_BINARY} + flags("run"), {});
  EXPECT_EQ(job.wait(2 * kHangSeconds), 0) << job.errors();
  EXPECT_EQ(losses("run"), expected());
  EXPECT_EQ(losses("run").size(), 3U);
}

TEST_F(Launchers, a_killed_rank_under_torchrun_is_named_by_the_other) {
  if (torchrun().empty()) GTEST_SKIP() << "needs torchrun in PATH or in RINGFOLD_TORCHRUN";
  Process job(
      folder_, "torchrun",
      Strings{torchrun(), "--no-python", "--standalone", "--nproc-per-node", "2", RINGFOLD_BINARY} + flags("run"),
      {{"RINGFOLD_FAULT", "1:2:forward:slow:0.7,1:2:forward:kill"}});
  EXPECT_EQ(job.wait(2 * kHangSeconds), 1) << job.errors();
  EXPECT_THAT(job.errors(), HasSubstr("ringfold: error: [mesh] rank 0 (lane rank 0): lost the connection to rank 1"));
}

TEST_F(Launchers, sruns_variables_are_enough) {
  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Process>> tasks;
  for (int task = 0; task < 2; ++task) {
    tasks.push_back(std::make_unique<Process>(folder_, fmt::format("task{}", task),
                                              Strings{RINGFOLD_BINARY} + flags("run"),
                                              Variables{{"SLURM_JOB_ID", "77"},
                                                        {"SLURM_STEP_ID", "0"},
                                                        {"SLURM_PROCID", std::to_string(task)},
                                                        {"SLURM_LOCALID", std::to_string(task)},
                                                        {"SLURM_NTASKS", "2"},
                                                        {"SLURM_STEP_NUM_TASKS", "2"},
                                                        {"SLURM_NNODES", "1"},
                                                        {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"},
                                                        {"MASTER_PORT", port}}));
  }
  for (const auto& task : tasks) EXPECT_EQ(task->wait(kHangSeconds), 0) << task->errors();
  EXPECT_EQ(losses("run"), expected());
}

}  // namespace
}  // namespace ringfold
