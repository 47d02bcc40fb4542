#include "ringfold/mesh/launch_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

LaunchEnv parse(const Variables& variables) {
  return parse_launch_env([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string refusal(const Variables& variables) {
  try {
    parse(variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29511"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(LaunchEnv, is_a_single_process_when_nothing_is_set) {
  const LaunchEnv env = parse({});
  EXPECT_EQ(env.world_size, 1);
  EXPECT_EQ(env.rank, Rank(0));
  EXPECT_EQ(env.local_world_size, 1);
  EXPECT_FALSE(env.under_ringfold_launch);
}

TEST(LaunchEnv, reads_the_torchrun_contract) {
  Variables variables = with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True");
  variables["TORCHELASTIC_RESTART_COUNT"] = "2";
  variables["GLOO_SOCKET_IFNAME"] = "eth1";
  const LaunchEnv env = parse(variables);
  EXPECT_EQ(env.rank, Rank(5));
  EXPECT_EQ(env.world_size, 8);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 4);
  EXPECT_EQ(env.master_addr, "node0");
  EXPECT_EQ(env.master_port, 29511);
  EXPECT_TRUE(env.launcher_owns_store);
  EXPECT_FALSE(env.under_ringfold_launch);
  EXPECT_EQ(env.restart_count, 2);
  EXPECT_EQ(env.socket_interface, "eth1");
}

TEST(LaunchEnv, knows_its_own_launcher) {
  const LaunchEnv env = parse(with(with(kTorchrun, "RINGFOLD_LAUNCH", "1"), "RINGFOLD_LAUNCH_VOICE", "7"));
  EXPECT_TRUE(env.under_ringfold_launch);
  EXPECT_EQ(env.voice_fd, 7);
}

TEST(LaunchEnv, reads_open_mpi) {
  Variables mpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                   {"OMPI_COMM_WORLD_SIZE", "4"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  const LaunchEnv env = parse(mpi);
  EXPECT_EQ(env.rank, Rank(3));
  EXPECT_EQ(env.local_rank, 3);
  EXPECT_EQ(env.master_addr, "127.0.0.1");
  EXPECT_EQ(env.master_port, 29500);

  mpi["OMPI_COMM_WORLD_LOCAL_RANK"] = "1";
  mpi["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_THAT(refusal(mpi), HasSubstr("[launch] MASTER_ADDR: got nothing"));
  EXPECT_THAT(refusal(mpi), HasSubstr("mpirun -x MASTER_ADDR="));
  EXPECT_EQ(parse(with(mpi, "MASTER_ADDR", "node7")).master_addr, "node7");
}

TEST(LaunchEnv, reads_mpich_also_inside_a_slurm_allocation) {
  Variables mpi = {{"PMI_RANK", "3"},     {"PMI_SIZE", "4"},     {"MPI_LOCALRANKID", "3"}, {"MPI_LOCALNRANKS", "4"},
                   {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}};
  const LaunchEnv env = parse(mpi);
  EXPECT_EQ(env.rank, Rank(3));
  EXPECT_EQ(env.local_rank, 3);
  EXPECT_EQ(env.world_size, 4);
  EXPECT_EQ(env.master_addr, "127.0.0.1");

  mpi["MPI_LOCALRANKID"] = "1";
  mpi["MPI_LOCALNRANKS"] = "2";
  EXPECT_THAT(refusal(mpi), HasSubstr("mpirun -genv MASTER_ADDR <host of rank 0>"));
  // srun's own PMI says less than its other variables.
  EXPECT_EQ(parse({{"PMI_RANK", "1"},
                   {"PMI_SIZE", "2"},
                   {"SLURM_PROCID", "1"},
                   {"SLURM_STEP_NUM_TASKS", "2"},
                   {"SLURM_LOCALID", "1"}})
                .rank,
            Rank(1));
}

TEST(LaunchEnv, reads_slurm_job_steps) {
  Variables slurm = {
      {"SLURM_PROCID", "5"},          {"SLURM_NTASKS", "8"},         {"SLURM_LOCALID", "1"},
      {"SLURM_NTASKS_PER_NODE", "4"}, {"SLURM_NNODES", "2"},         {"SLURM_JOB_ID", "77"},
      {"SLURM_STEP_ID", "0"},         {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"},
      {"MASTER_PORT", "4000"}};
  const LaunchEnv env = parse(slurm);
  EXPECT_EQ(env.rank, Rank(5));
  EXPECT_EQ(env.world_size, 8);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 4);
  EXPECT_EQ(env.master_addr, "10.0.0.9");
  EXPECT_EQ(env.master_port, 4000);
  EXPECT_FALSE(env.launcher_owns_store);
  EXPECT_EQ(parse(with(slurm, "MASTER_ADDR", "node0")).master_addr, "node0");
  EXPECT_THAT(refusal(without(slurm, "SLURM_LAUNCH_NODE_IPADDR")),
              HasSubstr("Hint: export MASTER_ADDR=<first node of the job> before srun."));
  EXPECT_THAT(refusal(without(slurm, "SLURM_NTASKS_PER_NODE")), HasSubstr("[launch] SLURM_NTASKS_PER_NODE"));
}

TEST(LaunchEnv, reads_slurm_on_one_node_from_the_task_count_alone) {
  const LaunchEnv env = parse({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "2"}});
  EXPECT_EQ(env.world_size, 4);
  EXPECT_EQ(env.local_world_size, 4);
  EXPECT_EQ(env.master_addr, "127.0.0.1");
}

TEST(LaunchEnv, is_a_single_process_inside_a_slurm_allocation_but_outside_a_step) {
  // salloc's shell knows the allocation's task count only.
  EXPECT_EQ(parse({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "77"}}).world_size, 1);
  // An interactive step has one task.
  EXPECT_EQ(parse({{"SLURM_PROCID", "0"},
                   {"SLURM_NTASKS", "8"},
                   {"SLURM_JOB_ID", "77"},
                   {"SLURM_STEP_ID", "4294967290"},
                   {"SLURM_STEP_NUM_TASKS", "1"}})
                .world_size,
            1);
  // The batch script is no step.
  EXPECT_EQ(parse({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "77"}}).world_size, 1);
  EXPECT_EQ(parse({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}).world_size, 1);
}

TEST(LaunchEnv, prefers_the_plain_contract_to_the_launchers_names) {
  Variables variables = kTorchrun;
  variables["SLURM_PROCID"] = "0";
  variables["SLURM_NTASKS"] = "2";
  variables["OMPI_COMM_WORLD_SIZE"] = "3";
  EXPECT_EQ(parse(variables).world_size, 8);
}

TEST(LaunchEnv, refuses_what_is_not_a_number) {
  for (const char* value : {"two", "2x", "-1", "1.5", " 1", "99999999999"}) {
    EXPECT_EQ(refusal(with(kTorchrun, "RANK", value)),
              "[launch] RANK: got '" + std::string(value) +
                  "', expected a number from 0 to 7. Hint: the launcher sets it; unset it to run a single process.");
  }
  EXPECT_THAT(refusal(with(kTorchrun, "WORLD_SIZE", "many")), HasSubstr("[launch] WORLD_SIZE: got 'many'"));
}

TEST(LaunchEnv, refuses_ranks_outside_the_world) {
  EXPECT_THAT(refusal(with(kTorchrun, "RANK", "8")), HasSubstr("RANK: got '8', expected a number from 0 to 7"));
  EXPECT_THAT(refusal(with(kTorchrun, "LOCAL_RANK", "4")),
              HasSubstr("LOCAL_RANK: got '4', expected a number from 0 to 3"));
  EXPECT_THAT(refusal(with(kTorchrun, "LOCAL_WORLD_SIZE", "9")), HasSubstr("LOCAL_WORLD_SIZE: got '9'"));
  EXPECT_THAT(refusal(with(kTorchrun, "WORLD_SIZE", "0")), HasSubstr("WORLD_SIZE: got '0'"));
  EXPECT_THAT(refusal(with(kTorchrun, "MASTER_PORT", "70000")), HasSubstr("MASTER_PORT: got '70000'"));
}

TEST(LaunchEnv, refuses_half_a_contract) {
  EXPECT_EQ(refusal({{"RANK", "1"}}),
            "[launch] WORLD_SIZE: got nothing, expected a number, because RANK is 1. Hint: set it on every rank, or "
            "start with `ringfold launch -n N -- ...`.");
  EXPECT_THAT(refusal({{"WORLD_SIZE", "4"}}), HasSubstr("[launch] RANK: got nothing"));
  EXPECT_THAT(refusal(without(kTorchrun, "MASTER_PORT")), HasSubstr("[launch] MASTER_PORT: got nothing"));
  EXPECT_THAT(refusal(without(kTorchrun, "MASTER_ADDR")), HasSubstr("[launch] MASTER_ADDR: got nothing"));
}

TEST(LaunchEnv, an_empty_variable_counts_as_unset) {
  EXPECT_EQ(parse({{"RANK", ""}, {"WORLD_SIZE", ""}}).world_size, 1);
}

TEST(LaunchEnv, fills_in_the_local_place_on_one_host) {
  const LaunchEnv env = parse({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "4000"}});
  EXPECT_EQ(env.local_rank, 2);
  EXPECT_EQ(env.local_world_size, 4);
}

TEST(LaunchEnv, a_world_of_one_needs_no_address) {
  EXPECT_EQ(parse({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).world_size, 1);
  EXPECT_EQ(parse({{"WORLD_SIZE", "1"}}).world_size, 1);
}

}  // namespace
}  // namespace ringfold
