#include "ringfold/train/session.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdlib>
#include <sstream>
#include <thread>

#include "ringfold/device/device.h"
#include "ringfold/mesh/failure.h"
#include "ringfold/mesh/fault.h"
#include "ringfold/mesh/monitor.h"
#include "ringfold/mesh/process_end.h"

namespace ringfold {
namespace {

// CPU ranks of one machine share its cores; OMP_NUM_THREADS wins.
void set_threads(const LaunchEnv& env) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  at::set_num_threads(std::max(1, cores / std::max(1, env.local_world_size)));
}

CommOptions comm_options(const RunSettings& settings) {
  CommOptions options;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(settings.comm_timeout_seconds * 1e3));
  return options;
}

// An error that only some ranks have is told with its rank.
void throw_refusal(std::vector<Rendezvous::Status> failures, const LaunchEnv& env) {
  if (static_cast<int>(failures.size()) < env.world_size) {
    for (Rendezvous::Status& failure : failures) {
      failure.error = fmt::format("(rank {}) {}", failure.rank.value(), failure.error);
    }
  }
  throw_agreed_failure(failures, env.rank);
}

Rendezvous::Status status_of(const Error& error, Rank rank) {
  return {rank, error.exit_code(), error.what()};
}

}  // namespace

void Session::enter(std::string_view stage, int64_t step, int micro_step) const {
  if (rendezvous != nullptr && rendezvous->monitor() != nullptr) {
    rendezvous->monitor()->enter(stage, step, micro_step);
  } else {
    inject_fault(env.rank, step, stage);
  }
  if (exchange != nullptr) exchange->mark();
}

std::unique_ptr<Session> start_session(const RunSettings& settings, const std::function<void(Session&)>& prepare) {
  auto session = std::make_unique<Session>();
  session->settings = settings;
  session->env = read_launch_env();
  session->settings.parallel.world_size = session->env.world_size;
  set_threads(session->env);
  session->rendezvous = std::make_shared<Rendezvous>(session->env, comm_options(settings));
  // A rank that never came is known soon; one that loads large files may take as long as any operation.
  throw_refusal(session->rendezvous->agree("present", {session->env.rank, ExitCode::kOk, ""}), session->env);

  Rendezvous::Status status{session->env.rank, ExitCode::kOk, ""};
  try {
    session->topology = derive_topology(session->settings.parallel);
    if (session->topology.tp > 1 || session->topology.pp > 1) {
      throw UsageError(fmt::format(
          "[settings] --tensor-model-parallel-size {} / --pipeline-model-parallel-size {}: not built yet for this "
          "command. Hint: use 1 and 1; `ringfold plan` accepts larger values",
          session->topology.tp, session->topology.pp));
    }
    session->enter("loading");
    session->device = open_device(settings.device, session->env.local_rank);
    if (session->device.is_cpu() && settings.dtype == "bfloat16") {
      throw UsageError(
          "[settings] --dtype bfloat16: got --device cpu, expected a GPU. Hint: --device cuda, or float32");
    }
    if (session->device.is_cpu() && settings.recompute == "selective") {
      throw UsageError("[settings] --recompute selective: got --device cpu, expected a GPU. Hint: none or full");
    }
    prepare(*session);
  } catch (const Error& error) {
    status = status_of(error, session->env.rank);
  } catch (const std::exception& error) {  // e.g. out of memory: the other ranks must hear of it too
    status = {session->env.rank, ExitCode::kFailure, message_of(error, session->env.rank)};
  }
  throw_refusal(session->rendezvous->agree("start", status, comm_options(settings).timeout), session->env);

  const Topology& topology = session->topology;
  const MeshShape mesh(topology.tp, topology.max_cp, topology.dp, topology.pp);
  session->lane_rank = mesh.lane_rank_of(session->env.rank);
  try {
    session->owned_comms = session->rendezvous->connect_lane(mesh.lane_of(session->env.rank), "lane0", session->device);
  } catch (const std::exception& failure) {
    end_on_gpus(*session, failure);
    throw;
  }
  session->exchange = session->owned_comms.exchange.get();
  session->reductions = session->owned_comms.collectives.get();
  return session;
}

void end_on_gpus(const Session& session, const std::exception& failure) {
  if (!session.device.is_cpu()) end_process_now(report_run_failure(failure, session.env));
}

int run_with_others(Session& session, const std::function<int(Session&)>& work) {
  try {
    return work(session);
  } catch (const std::exception& failure) {
    // Of a lost peer the monitor has told what it found.
    const bool told = dynamic_cast<const PeerError*>(&failure) != nullptr ||
                      dynamic_cast<const ReportedElsewhere*>(&failure) != nullptr;
    if (!told) session.rendezvous->tell_failure(message_of(failure, session.env.rank));
    end_on_gpus(session, failure);
    throw;
  }
}

int refuse_start(const Error& error) {
  const LaunchEnv env = read_launch_env();
  try {
    CommOptions options;
    options.timeout = std::chrono::seconds(10);
    throw_refusal(Rendezvous(env, options).agree("present", status_of(error, env.rank)), env);
  } catch (const PeerError&) {
    // The other ranks cannot be reached: say what is known here.
  } catch (const Error& agreed) {
    return report_failure(agreed, env);
  }
  return report_failure(error, env);
}

void require_same_run(Session& session, const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string mine;
  for (const auto& [name, value] : facts) mine += name + "=" + value + "\n";
  const std::vector<std::string> all = session.rendezvous->all_gather("facts", mine);
  std::vector<std::istringstream> lines;
  for (const std::string& text : all) lines.emplace_back(text);
  for (const auto& [name, value] : facts) {
    std::vector<std::string> by_rank(all.size());
    for (size_t rank = 0; rank < all.size(); ++rank) {
      std::getline(lines[rank], by_rank[rank]);
      by_rank[rank].erase(0, by_rank[rank].find('=') + 1);
    }
    require_equal(by_rank, name, "every rank must get the same flags, recipe and data file");
  }
}

}  // namespace ringfold
