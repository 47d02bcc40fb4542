// Starts the ranks of a job on this host and sees to their common end (`ringfold launch -n N -- ...`).
#pragma once

#include <string>
#include <vector>

namespace ringfold {

struct LaunchRequest {
  int ranks = 1;
  std::string program;            // a path, or a name looked up in PATH
  std::vector<std::string> argv;  // what the ranks see, argv[0] included
};

// Hosts the job's store on a free port of the loopback interface, runs the program once a rank with the environment
// that read_launch_env() reads, and waits for all ranks. SIGINT and SIGTERM are passed on. When a rank fails, or has
// told a failure and none has ended 20 s later, the others are ended (SIGTERM, 5 s later SIGKILL) and the cause is told
// in one line: a rank killed by a signal is the cause even when a peer's exit, the echo of it, comes first. No rank
// outlives the launcher, but one that the kernel still holds 10 s after SIGKILL. Returns 0, or the code of the rank
// that failed first: 128 + n after signal n. Throws UsageError for a bad request. Call it from the main thread, before
// other threads exist.
int launch_processes(const LaunchRequest& request);

}  // namespace ringfold
