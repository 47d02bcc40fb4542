#include "ringfold/mesh/launch_env.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

constexpr uint16_t kDefaultPort = 29500;

class Variables {
 public:
  explicit Variables(const EnvLookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(const std::string& name) const {
    auto value = lookup_(name);
    if (value && value->empty()) return std::nullopt;
    return value;
  }
  bool has(const std::string& name) const { return text(name).has_value(); }

  std::optional<int> number(const std::string& name, int low, int high) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int result = 0;
    const auto [end, status] = std::from_chars(value->data(), value->data() + value->size(), result);
    if (status != std::errc() || end != value->data() + value->size() || result < low || result > high) {
      throw UsageError(
          fmt::format("[launch] {}: got '{}', expected a number from {} to {}. Hint: the launcher sets it; "
                      "unset it to run a single process.",
                      name, *value, low, high));
    }
    return result;
  }

  int required(const std::string& name, int low, int high, const std::string& because) const {
    const auto value = number(name, low, high);
    if (value) return *value;
    throw UsageError(
        fmt::format("[launch] {}: got nothing, expected a number, because {}. Hint: set it on every rank, "
                    "or start with `ringfold launch -n N -- ...`.",
                    name, because));
  }

 private:
  const EnvLookup& lookup_;
};

// What the launchers call the same four numbers.
struct Names {
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};

constexpr Names kPlain{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE"};
// MPICH and Intel MPI; srun with PMI sets the first two alone.
constexpr Names kHydra{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr int kMaxWorld = 1 << 20;

void read_places(const Variables& env, const Names& names, int world_size, LaunchEnv& result) {
  result.world_size = world_size;
  result.rank =
      Rank(env.required(names.rank, 0, world_size - 1, fmt::format("{} is {}", names.world_size, world_size)));
  const auto local_size = env.number(names.local_world_size, 1, world_size);
  result.local_world_size = local_size.value_or(world_size);
  const auto local_rank = env.number(names.local_rank, 0, result.local_world_size - 1);
  result.local_rank = local_rank.value_or(result.rank.value() % result.local_world_size);
}

// The number of ranks that MPICH's mpirun started; none without it. Inside a Slurm allocation it starts its helpers by
// srun, whose numbers are not those of the ranks.
std::optional<int> hydra_ranks(const Variables& env) {
  if (!env.has(kHydra.local_world_size)) return std::nullopt;
  return env.number(kHydra.world_size, 1, kMaxWorld);
}

// The number of ranks that `srun` started together with this one; none outside a job step. salloc's shell and the batch
// script see SLURM_NTASKS of the whole allocation, yet are one process.
std::optional<int> slurm_tasks(const Variables& env) {
  if (!env.has("SLURM_PROCID")) return std::nullopt;
  if (const auto tasks = env.number("SLURM_STEP_NUM_TASKS", 1, kMaxWorld)) return tasks;
  const bool batch_script = env.has("SLURM_JOB_ID") && !env.has("SLURM_STEP_ID") && env.text("SLURM_PROCID") == "0";
  if (batch_script) return std::nullopt;
  return env.number("SLURM_NTASKS", 1, kMaxWorld);
}

void read_slurm(const Variables& env, int tasks, LaunchEnv& result) {
  const bool several_nodes = env.number("SLURM_NNODES", 1, kMaxWorld).value_or(1) > 1;
  if (several_nodes && !env.has("SLURM_NTASKS_PER_NODE")) {
    throw UsageError(
        fmt::format("[launch] SLURM_NTASKS_PER_NODE: got nothing, expected the number of ranks a node, "
                    "because SLURM_NNODES is {}. Hint: pass --ntasks-per-node to srun or sbatch.",
                    *env.text("SLURM_NNODES")));
  }
  // A step may use fewer tasks a node than the allocation has.
  const int per_node = env.number("SLURM_NTASKS_PER_NODE", 1, kMaxWorld).value_or(tasks);
  result.world_size = tasks;
  result.rank = Rank(env.required("SLURM_PROCID", 0, tasks - 1, fmt::format("the job step has {} tasks", tasks)));
  result.local_world_size = std::min(per_node, tasks);
  result.local_rank = env.number("SLURM_LOCALID", 0, result.local_world_size - 1)
                          .value_or(result.rank.value() % result.local_world_size);
}

// `remedy` says how this launcher is told the address.
void read_master(const Variables& env, const char* remedy, LaunchEnv& result) {
  const bool one_host = result.local_world_size == result.world_size;
  const auto address = env.text("MASTER_ADDR");
  if (!address && !one_host) {
    throw UsageError(
        fmt::format("[launch] MASTER_ADDR: got nothing, expected the host of rank 0, because {} ranks run on "
                    "several hosts ({} on this one). Hint: {}",
                    result.world_size, result.local_world_size, remedy));
  }
  result.master_addr = address.value_or("127.0.0.1");
  result.master_port = static_cast<uint16_t>(env.number("MASTER_PORT", 1, 65535).value_or(kDefaultPort));
}

}  // namespace

LaunchEnv parse_launch_env(const EnvLookup& lookup) {
  const Variables env(lookup);
  LaunchEnv result;
  result.under_ringfold_launch = env.text("RINGFOLD_LAUNCH") == "1";
  result.voice_fd = env.number("RINGFOLD_LAUNCH_VOICE", 0, 1 << 20).value_or(-1);
  result.launcher_owns_store = env.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  result.restart_count = env.number("TORCHELASTIC_RESTART_COUNT", 0, 1 << 30).value_or(0);
  result.socket_interface = env.text("GLOO_SOCKET_IFNAME").value_or("");

  if (env.has("RANK") || env.has("WORLD_SIZE")) {
    const int world_size =
        env.required("WORLD_SIZE", 1, kMaxWorld, fmt::format("RANK is {}", env.text("RANK").value_or("unset")));
    if (world_size == 1 && !env.has("RANK")) return result;
    read_places(env, kPlain, world_size, result);
    if (world_size == 1) return result;
    env.required("MASTER_PORT", 1, 65535, fmt::format("WORLD_SIZE is {}", world_size));
    read_master(env, "export MASTER_ADDR=<host of rank 0> on every rank.", result);
  } else if (const auto ranks = env.number(kOpenMpi.world_size, 1, kMaxWorld); ranks && *ranks > 1) {
    read_places(env, kOpenMpi, *ranks, result);
    read_master(env, "mpirun -x MASTER_ADDR=<host of rank 0> -x MASTER_PORT=<free port> ...", result);
  } else if (const auto mpich = hydra_ranks(env); mpich && *mpich > 1) {
    read_places(env, kHydra, *mpich, result);
    read_master(env, "mpirun -genv MASTER_ADDR <host of rank 0> -genv MASTER_PORT <free port> ...", result);
  } else if (const auto tasks = slurm_tasks(env); tasks && *tasks > 1) {
    read_slurm(env, *tasks, result);
    const EnvLookup with_slurm_address = [&](const std::string& name) {
      auto value = env.text(name);
      return name == "MASTER_ADDR" && !value ? env.text("SLURM_LAUNCH_NODE_IPADDR") : value;
    };
    read_master(Variables(with_slurm_address), "export MASTER_ADDR=<first node of the job> before srun.", result);
  }
  return result;
}

LaunchEnv read_launch_env() {
  return parse_launch_env([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace ringfold
