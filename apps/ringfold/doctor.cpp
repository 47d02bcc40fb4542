// `ringfold doctor`: is this machine - under a launcher: are these machines - fit for a run, and if not, what to do.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "commands.h"
#include "doctor_checks.h"
#include "output.h"
#include "ringfold/mesh/rendezvous.h"

namespace ringfold {
namespace {

using nlohmann::ordered_json;

constexpr double kGreatestSkewSeconds = 1;

const char* name_of_health(Health health) {
  return health == Health::kOk ? "ok" : health == Health::kNote ? "note" : "problem";
}

ordered_json to_json(const Finding& finding) {
  ordered_json object = {{"name", finding.name}, {"health", name_of_health(finding.health)}, {"found", finding.text}};
  if (!finding.advice.empty()) object["advice"] = finding.advice;
  return object;
}

Finding from_json(const ordered_json& object) {
  const std::string health = object["health"];
  return {object["name"],
          health == "ok"     ? Health::kOk
          : health == "note" ? Health::kNote
                             : Health::kProblem,
          object["found"], object.value("advice", "")};
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Every rank looks at its clock at nearly the same time, right after a barrier.
Finding check_clocks(LaneComms& comms) {
  comms.collectives->barrier("clock check");
  const std::vector<double> clocks = comms.collectives->all_gather_double(wall_seconds(), "clock check");
  const auto [low, high] = std::minmax_element(clocks.begin(), clocks.end());
  const double skew = *high - *low;
  Finding finding{"clocks", Health::kOk, fmt::format("{} ranks differ by at most {:.3f} s", clocks.size(), skew), ""};
  if (skew > kGreatestSkewSeconds) {
    finding.health = Health::kNote;
    finding.text =
        fmt::format("rank {} is {:.1f} s ahead of rank {}", high - clocks.begin(), skew, low - clocks.begin());
    finding.advice = "log times will not match: let chrony or ntpd set the clocks";
  }
  return finding;
}

// The findings of all ranks (JSON, by rank) as one list: rank 0's, and what other ranks found that is not well.
std::vector<Finding> merge(const std::vector<std::string>& by_rank) {
  std::vector<std::pair<Finding, std::vector<int>>> merged;  // with the ranks that found it
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const ordered_json& object : ordered_json::parse(by_rank[rank])) {
      const Finding finding = from_json(object);
      const auto same = std::find_if(merged.begin(), merged.end(), [&](const auto& known) {
        const bool both_well = known.first.health == Health::kOk && finding.health == Health::kOk;
        // Space and memory differ a little everywhere; versions must not.
        const bool alike = known.first.text == finding.text || (both_well && finding.name != "versions");
        return known.first.name == finding.name && known.first.health == finding.health && alike;
      });
      if (same == merged.end()) {
        merged.push_back({finding, {static_cast<int>(rank)}});
      } else {
        same->second.push_back(static_cast<int>(rank));
      }
    }
  }
  std::vector<Finding> findings;
  for (auto& [finding, ranks] : merged) {
    const bool differs = finding.name == "versions" && ranks.size() < by_rank.size();
    if (differs) {
      finding.health = Health::kProblem;
      finding.advice = "start the same binary on every rank";
    }
    if (finding.health != Health::kOk && ranks.size() < by_rank.size()) {
      finding.text = fmt::format("rank(s) {}: {}", fmt::join(ranks, ", "), finding.text);
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

// The job's store, connections and clocks; `local` becomes the findings of all ranks.
void check_job(const RunSettings& settings, const LaunchEnv& env, std::vector<Finding>& local) {
  CommOptions options;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(settings.comm_timeout_seconds * 1e3));
  try {
    Rendezvous rendezvous(env, options);
    ordered_json own = ordered_json::array();
    for (const Finding& finding : local) own.push_back(to_json(finding));
    local = merge(rendezvous.all_gather("doctor", own.dump()));
    local.push_back({"store", Health::kOk,
                     fmt::format("{} ranks met at {}:{}", env.world_size, env.master_addr, env.master_port), ""});
    std::vector<Rank> lane;
    for (int rank = 0; rank < env.world_size; ++rank) lane.emplace_back(rank);
    LaneComms comms = rendezvous.connect_lane(lane, "doctor");
    local.push_back({"connections", Health::kOk, "every rank reaches every other", ""});
    local.push_back(check_clocks(comms));
    comms.collectives->barrier("end of the check");
  } catch (const RunError& error) {
    local.push_back({"job", Health::kProblem, error.what(), "see docs/guide/launchers.md"});
  }
}

void print(const std::vector<Finding>& findings, bool well, bool json) {
  if (json) {
    ordered_json checks = ordered_json::array();
    for (const Finding& finding : findings) checks.push_back(to_json(finding));
    write_stdout(ordered_json{{"schema", 1}, {"ok", well}, {"checks", checks}}.dump() + "\n");
    return;
  }
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<8} {:<14} {}\n", name_of_health(finding.health), finding.name, finding.text);
    if (!finding.advice.empty()) text += fmt::format("{:<23} -> {}\n", "", finding.advice);
  }
  write_stdout(text + (well ? "doctor: ready\n" : "doctor: not ready\n"));
}

}  // namespace

int run_doctor(const RunSettings& settings, const CommandOptions& options) {
  const LaunchEnv env = read_launch_env();
  std::vector<Finding> findings;
  // It forks, so it comes before there are threads; one rank of each machine looks.
  if (env.local_rank == 0) findings.push_back(check_loopback());
  findings.push_back(check_versions());
  if (env.local_rank == 0) {
    for (Finding& finding : std::vector{check_devices(env.local_world_size), check_cores(env.local_world_size),
                                        check_memory(), check_shared_memory(), check_open_files(env.world_size),
                                        check_output_folder(settings.output_dir)}) {
      findings.push_back(std::move(finding));
    }
  }
  if (env.world_size > 1) check_job(settings, env, findings);
  const bool well =
      std::none_of(findings.begin(), findings.end(), [](const auto& f) { return f.health == Health::kProblem; });
  if (env.rank == Rank(0)) print(findings, well, options.json);
  return well ? 0 : static_cast<int>(ExitCode::kDifference);
}

}  // namespace ringfold
