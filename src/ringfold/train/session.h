// What every parallel command has once all ranks agree to begin.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ringfold/mesh/launch_env.h"
#include "ringfold/mesh/mesh.h"
#include "ringfold/mesh/rendezvous.h"
#include "ringfold/plan/cost_model.h"
#include "ringfold/plan/settings.h"
#include "ringfold/train/settings.h"

namespace ringfold {

struct Session {
  RunSettings settings;
  LaunchEnv env;
  Topology topology;
  CostModel cost = CostModel::qwen3_4b_h200();  // of every plan of the run; start_run sets that of --cost-model
  LaneRank lane_rank{0};
  at::Device device = at::kCPU;
  Exchange* exchange = nullptr;
  Collectives* reductions = nullptr;

  // What keeps those alive; empty in tests, where ranks are threads and a fixture owns them.
  std::shared_ptr<Rendezvous> rendezvous;
  LaneComms owned_comms;

  bool is_main() const { return env.rank.value() == 0; }
  Collectives& collectives() { return *reductions; }
  // What this rank does from now on, for the ranks that wait for it (mesh/monitor.h); the stages are those of
  // mesh/fault.h. micro_step < 0: none.
  void enter(std::string_view stage, int64_t step = 0, int micro_step = -1) const;
};

// Runs `prepare` (settings, files: everything that may be refused) on every rank, lets all ranks agree, then connects
// the lane. When one rank is refused all of them throw, and the error is told once (mesh/failure.h).
// `prepare` may derive the topology anew from what it reads.
std::unique_ptr<Session> start_session(const RunSettings& settings, const std::function<void(Session&)>& prepare);

// Runs the work of a parallel command and returns its exit code. A failure here is told to the other ranks before the
// connections close.
int run_with_others(Session& session, const std::function<int(Session&)>& work);

// After a failure beside a lane of GPUs: reports it and ends the process, for nothing bounds what destructors of broken
// communicators take. Returns on the CPU.
void end_on_gpus(const Session& session, const std::exception& failure);

// Ends a start that failed before any settings existed (a bad flag): agrees with the other ranks, tells once, returns
// the exit code.
int refuse_start(const Error& error);

// The digest of data and settings that ranks compare before step 1: "name=value" lines without paths, hosts or
// rank-local values. Throws UsageError naming the setting, the ranks and both values.
void require_same_run(Session& session, const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace ringfold
