// The environment contract of every launcher: `ringfold launch`, torchrun, Open MPI (OMPI_COMM_WORLD_*), Slurm
// (SLURM_PROCID ...). One place reads those variables.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "ringfold/base/ids.h"

namespace ringfold {

struct LaunchEnv {
  Rank rank{0};
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string master_addr = "127.0.0.1";
  uint16_t master_port = 0;            // 0 only when world_size is 1
  bool launcher_owns_store = false;    // TORCHELASTIC_USE_AGENT_STORE=True: rank 0 connects too, instead of listening
  bool under_ringfold_launch = false;  // the launcher reports the cause of a failure; ranks keep quiet about echoes
  int voice_fd = -1;                   // RINGFOLD_LAUNCH_VOICE: see mesh/failure.h
  int restart_count = 0;               // TORCHELASTIC_RESTART_COUNT: attempts of one job share the agent's store
  std::string socket_interface;        // GLOO_SOCKET_IFNAME; empty: chosen at the rendezvous
};

// The value of an environment variable; none when unset. A variable that is set but empty counts as unset.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or the launcher's own names; a single
// process when none is set. Slurm's names count only in a job step of several tasks: a shell inside an allocation has
// them too. Throws UsageError that names the variable, its value and the remedy.
LaunchEnv read_launch_env();
LaunchEnv parse_launch_env(const EnvLookup& lookup);

}  // namespace ringfold
