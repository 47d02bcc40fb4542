#include "ringfold/train/session.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <thread>

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

// Rank 0 prints each different error once; an error that not every rank has is shown with its ranks.
ExitCode print_failures(const std::vector<Rendezvous::Status>& failures, const LaunchEnv& env) {
  std::map<std::string, std::vector<int>> by_error;
  for (const auto& failure : failures) by_error[failure.error].push_back(failure.rank.value());
  if (env.rank.value() == 0) {
    for (const auto& [error, ranks] : by_error) {
      const bool shared = static_cast<int>(ranks.size()) == env.world_size;
      std::fputs(shared ? fmt::format("ringfold: error: {}\n", error).c_str()
                        : fmt::format("ringfold: error: (rank {}) {}\n", fmt::join(ranks, ", "), error).c_str(),
                 stderr);
    }
  }
  return failures.front().code;
}

Rendezvous::Status status_of(const Error& error, Rank rank) {
  return {rank, error.exit_code(), error.what()};
}

}  // namespace

StartResult start_session(const RunSettings& settings, const std::function<void(const Topology&)>& prepare) {
  auto session = std::make_unique<Session>();
  session->settings = settings;
  session->env = read_launch_env();
  session->settings.parallel.world_size = session->env.world_size;
  set_threads(session->env);
  session->rendezvous = std::make_shared<Rendezvous>(session->env, comm_options(settings));

  Rendezvous::Status status{session->env.rank, ExitCode::kOk, ""};
  try {
    session->topology = derive_topology(session->settings.parallel);
    if (session->topology.tp > 1 || session->topology.pp > 1) {
      throw UsageError(fmt::format(
          "[settings] --tensor-model-parallel-size {} / --pipeline-model-parallel-size {}: not built yet for this "
          "command. Hint: use 1 and 1; `ringfold plan` accepts larger values",
          session->topology.tp, session->topology.pp));
    }
    prepare(session->topology);
  } catch (const Error& error) {
    status = status_of(error, session->env.rank);
  }
  const auto failures = session->rendezvous->agree("start", status);
  if (!failures.empty()) return {nullptr, print_failures(failures, session->env)};

  const Topology& topology = session->topology;
  const MeshShape mesh(topology.tp, topology.max_cp, topology.dp, topology.pp);
  session->lane_rank = mesh.lane_rank_of(session->env.rank);
  session->owned_comms = session->rendezvous->connect_lane(mesh.lane_of(session->env.rank), "lane0");
  session->exchange = session->owned_comms.exchange.get();
  session->reductions = session->owned_comms.collectives.get();
  return {std::move(session), ExitCode::kOk};
}

ExitCode refuse_start(const Error& error) {
  LaunchEnv env;
  try {
    env = read_launch_env();
    if (env.world_size > 1) {
      CommOptions options;
      options.timeout = std::chrono::seconds(10);
      return print_failures(Rendezvous(env, options).agree("start", status_of(error, env.rank)), env);
    }
  } catch (const Error&) {
    // The other ranks cannot be reached: say what is known here.
  }
  std::fputs(fmt::format("ringfold: error: {}\n", error.what()).c_str(), stderr);
  return error.exit_code();
}

void require_same_run(Session& session, const std::vector<std::pair<std::string, std::string>>& facts) {
  if (session.env.world_size == 1) return;
  std::string mine;
  for (const auto& [name, value] : facts) mine += name + "=" + value + "\n";
  const std::vector<std::string> all = session.rendezvous->all_gather("facts", mine);
  std::vector<std::istringstream> lines;
  for (const std::string& text : all) lines.emplace_back(text);
  for (const auto& [name, value] : facts) {
    std::vector<std::string> by_rank(all.size());
    for (size_t rank = 0; rank < all.size(); ++rank) std::getline(lines[rank], by_rank[rank]);
    require_equal(by_rank, name, "every rank must get the same flags, recipe and data file");
  }
}

}  // namespace ringfold
