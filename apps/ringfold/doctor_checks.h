// What `ringfold doctor` looks at on one machine: each check gives one line, and says what to do when it is not well.
#pragma once

#include <string>
#include <vector>

namespace ringfold {

enum class Health { kOk, kNote, kProblem };

struct Finding {
  std::string name;  // "open files"
  Health health = Health::kOk;
  std::string text;    // "20000; a job of 4 ranks needs about 96"
  std::string advice;  // what to do; empty when all is well
};

Finding check_versions();
Finding check_devices(int local_ranks);
// Threads a rank, for `local_ranks` ranks on this machine.
Finding check_cores(int local_ranks);
Finding check_memory();
Finding check_shared_memory(const std::string& folder = "/dev/shm");
Finding check_open_files(int world_size);
// Free space and the right to write; the folder need not exist yet. Empty: the present folder.
Finding check_output_folder(const std::string& folder);
// Two processes of this machine find each other and sum a tensor. Call it before other threads exist.
Finding check_loopback();

}  // namespace ringfold
