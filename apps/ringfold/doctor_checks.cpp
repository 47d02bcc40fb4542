#include "doctor_checks.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "ringfold/base/error.h"
#include "ringfold/device/device.h"

namespace ringfold {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

int usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

// Cores that the container may use at a time; 0: no limit.
double container_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::atof(quota.c_str()) / period;
}

double meminfo_gib(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (double kib = 0; file >> name >> kib; std::getline(file, unit)) {
    if (name == key + ":") return kib * 1024 / kGiB;
  }
  return 0;
}

std::string gib(double bytes) {
  return fmt::format("{:.1f} GiB", bytes / kGiB);
}

}  // namespace

Finding check_versions() {
  return {
      "versions", Health::kOk,
      fmt::format("ringfold {}, compiler {}, torch {} with its own gloo", RINGFOLD_VERSION, __VERSION__, TORCH_VERSION),
      ""};
}

Finding check_devices(int local_ranks) {
  if (at::hasCUDA()) {
    try {
      const DeviceMemory memory = device_memory(open_device("cuda", local_ranks - 1));
      return {"devices", Health::kOk,
              fmt::format("CUDA; a GPU for each of {} rank(s) on this machine, {} of {} free on the last", local_ranks,
                          gib(static_cast<double>(memory.free_bytes)), gib(static_cast<double>(memory.total_bytes))),
              ""};
    } catch (const UsageError& refusal) {
      return {"devices", Health::kNote, refusal.what(), "none for a run on the CPU"};
    }
  }
  std::error_code error;
  int gpus = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    gpus += entry.exists() ? 1 : 0;
  }
  if (gpus == 0) return {"devices", Health::kOk, "CPU; no NVIDIA GPU on this machine", ""};
  return {"devices", Health::kNote, fmt::format("CPU; {} NVIDIA GPU(s), which this program leaves idle", gpus),
          "run ringfold-cuda with --device cuda to use them"};
}

Finding check_cores(int local_ranks) {
  const int cores = usable_cores();
  const double limit = container_cores();
  const double usable = limit > 0 ? std::min<double>(limit, cores) : cores;
  const char* set = std::getenv("OMP_NUM_THREADS");
  const int threads = set != nullptr ? std::max(1, std::atoi(set)) : std::max(1, cores / local_ranks);
  Finding finding{"cores", Health::kOk,
                  fmt::format("{} cores{}; {} rank(s) on this machine with {} thread(s) each{}", cores,
                              limit > 0 ? fmt::format(" (the container may use {:g})", limit) : "", local_ranks,
                              threads, set != nullptr ? " (OMP_NUM_THREADS)" : ""),
                  ""};
  if (threads * local_ranks > usable + 0.5) {
    finding.health = Health::kNote;
    finding.advice = fmt::format("more threads than cores slow every rank down: set OMP_NUM_THREADS={}{}",
                                 std::max(1, static_cast<int>(usable) / local_ranks),
                                 local_ranks > usable ? ", or start fewer ranks on this machine" : "");
  }
  return finding;
}

Finding check_memory() {
  const double total = meminfo_gib("MemTotal"), available = meminfo_gib("MemAvailable");
  Finding finding{"memory", Health::kOk, fmt::format("{:.1f} GiB available of {:.1f} GiB", available, total), ""};
  if (available < 1) {
    finding.health = Health::kProblem;
    finding.advice = "end other programs, or use another machine; `ringfold train` shows its estimate at start";
  }
  return finding;
}

Finding check_shared_memory(const std::string& folder) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) {
    return {"shared memory", Health::kNote, fmt::format("{}: {}", folder, std::strerror(errno)),
            "ranks of the CPU do without; GPU ranks need it: mount a tmpfs there"};
  }
  const double size = static_cast<double>(info.f_blocks) * static_cast<double>(info.f_frsize);
  Finding finding{"shared memory", Health::kOk, fmt::format("{} at {}", gib(size), folder), ""};
  if (size < 0.5 * kGiB) {
    finding.health = Health::kNote;
    finding.advice = "ranks of the CPU do without; for GPU ranks start the container with --shm-size=8g or --ipc=host";
  }
  return finding;
}

Finding check_open_files(int world_size) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  // Two connections to every other rank, and what a process has anyway.
  const rlim_t needed = 64 + 2 * static_cast<rlim_t>(std::max(world_size, 16));
  Finding finding{"open files", Health::kOk,
                  fmt::format("limit {}; {} ranks need about {}", limit.rlim_cur, std::max(world_size, 16), needed),
                  ""};
  if (limit.rlim_cur < needed) {
    finding.health = Health::kProblem;
    finding.advice = limit.rlim_max >= needed
                         ? fmt::format("ulimit -n {}", needed * 2)
                         : "have the administrator raise the hard limit of open files (limits.conf, or the container's "
                           "--ulimit nofile=65536)";
  }
  return finding;
}

Finding check_output_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path existing = fs::absolute(folder.empty() ? "." : folder);
  while (!fs::is_directory(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  Finding finding{"output folder", Health::kOk, "", ""};
  struct statvfs info {};
  const fs::path probe = existing / fmt::format(".ringfold-doctor-{}", getpid());
  const bool writable = static_cast<bool>(std::ofstream(probe) << "x" << std::flush);
  const int reason = errno;
  fs::remove(probe, error);
  if (!writable) {
    finding.health = Health::kProblem;
    finding.text = fmt::format("{}: cannot write there: {}", existing.string(), std::strerror(reason));
    finding.advice = "choose an --output-dir that you may write to";
    return finding;
  }
  if (statvfs(existing.c_str(), &info) != 0) return finding;
  const double space = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  finding.text = fmt::format("{}: {} free", existing.string(), gib(space));
  if (space < kGiB) {
    finding.health = Health::kProblem;
    finding.advice = "a run writes its weights there: free some space, or choose another --output-dir";
  }
  return finding;
}

}  // namespace ringfold
