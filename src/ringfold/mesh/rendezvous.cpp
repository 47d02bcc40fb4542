#include "ringfold/mesh/rendezvous.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <future>
#include <map>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "ringfold/mesh/beat.h"
#include "ringfold/mesh/exchange_collectives.h"
#include "ringfold/mesh/gloo/gloo_group.h"
#include "ringfold/mesh/monitor.h"
#include "ringfold/mesh/nccl_lane.h"
#include "ringfold/mesh/network.h"
#include "ringfold/mesh/single_rank.h"

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPollInterval{10};
// How long the host of the store stays for the ranks that still read from it.
constexpr milliseconds kLinger = std::chrono::seconds(3);
constexpr milliseconds kNoteStay{1200};

// A store whose server is stopped never answers, and c10d then waits without limit; hence a thread to leave behind.
// The call owns what it uses. Nothing came back in time: no value.
template <typename Call>
std::optional<std::invoke_result_t<Call>> call_with_limit(milliseconds limit, Call call) {
  std::packaged_task<std::invoke_result_t<Call>()> task(std::move(call));
  auto result = task.get_future();
  std::thread thread(std::move(task));
  if (result.wait_for(limit) != std::future_status::ready) {
    thread.detach();
    return std::nullopt;
  }
  thread.join();
  return result.get();
}

StorePtr connect_store(const LaunchEnv& env, milliseconds limit) {
  c10d::TCPStoreOptions options;
  options.port = env.master_port;
  options.isServer = env.rank == Rank(0) && !env.launcher_owns_store;
  options.waitWorkers = false;
  options.timeout = limit;
  StorePtr store = c10::make_intrusive<c10d::TCPStore>(env.master_addr, options);
  return c10::make_intrusive<c10d::PrefixStore>(store_prefix(env.restart_count), store);
}

// Gloo writes to its sockets plainly: without this a peer that has just died ends us by SIGPIPE, and silently.
void ignore_broken_pipes() {
  std::signal(SIGPIPE, SIG_IGN);
}

std::string key_of(const std::string& name, int rank) {
  return fmt::format("{}/{}", name, rank);
}

struct Gathered {
  std::vector<std::string> values;  // by rank; complete only when nobody is missing
  std::vector<int> missing;
  std::string story;  // where the missing ranks are
};

struct Limits {
  milliseconds silent;  // for a rank that gives no sign of life
  milliseconds alive;
};

// Whether one of the missing ranks has been silent, or all together have been waited for, too long.
bool give_up(c10d::Store& store, BeatReader& reader, const std::vector<int>& missing, Clock::time_point begin,
             const Limits& limits) {
  bool silent = false;
  for (const int rank : missing) {
    const BeatReader::Seen& seen = reader.look(store, Rank(rank));
    silent = silent || Clock::now() - seen.heard_at >= limits.silent;
  }
  return silent || Clock::now() - begin >= limits.alive;
}

std::string tell_missing(const BeatReader& reader, const std::vector<int>& missing, milliseconds interval) {
  constexpr size_t kTold = 4;
  std::string story;
  for (size_t i = 0; i < std::min(missing.size(), kTold); ++i) {
    story += "; " + describe_seen(Rank(missing[i]), reader.seen().at(missing[i]), interval);
  }
  return story;
}

// Polls rather than waits, so that the ranks that did not come can be named.
Gathered gather_values(c10d::Store& store, const std::string& name, int rank, int world_size, const std::string& value,
                       const Limits& limits) {
  const auto begin = Clock::now();
  const milliseconds interval = beat_interval(limits.alive);
  store.set(key_of(name, rank), value);
  std::vector<std::string> keys;
  for (int i = 0; i < world_size; ++i) keys.push_back(key_of(name, i));
  Gathered result;
  BeatReader reader(begin);
  auto looked_at = begin;
  while (!store.check(keys)) {
    std::this_thread::sleep_for(kPollInterval);
    if (Clock::now() - looked_at < interval) continue;
    looked_at = Clock::now();
    result.missing.clear();
    for (int i = 0; i < world_size; ++i) {
      if (!store.check({keys[i]})) result.missing.push_back(i);
    }
    if (!give_up(store, reader, result.missing, begin, limits)) continue;
    result.story = tell_missing(reader, result.missing, interval);
    return result;
  }
  result.missing.clear();
  for (const std::string& key : keys) result.values.push_back(store.get_to_str(key));
  return result;
}

void wait_for_readers(c10d::Store& store, const std::string& name, int readers) {
  const auto deadline = Clock::now() + kLinger;
  while (store.add(name + "/read", 0) < readers && Clock::now() < deadline) std::this_thread::sleep_for(kPollInterval);
}

// For the host of the store, which has left or read the note: returns when every other rank has read it or gives no
// sign of life any more; after `at_least` at the earliest for the latter, after `timeout` at the latest. Throws what
// the store throws.
void wait_for_readers_of_note(c10d::Store& store, Rank self, int world_size, milliseconds timeout,
                              milliseconds at_least) {
  const auto begin = Clock::now();
  const milliseconds interval = beat_interval(timeout);
  BeatReader reader(begin);
  std::vector<Rank> missing;
  for (int rank = 0; rank < world_size; ++rank) {
    if (Rank(rank) != self) missing.emplace_back(rank);
  }
  while (!missing.empty() && Clock::now() - begin < timeout) {
    const bool at_least_over = Clock::now() - begin >= at_least;
    std::erase_if(missing, [&](Rank rank) {
      if (store.check({note_read_key(rank)})) return true;
      const bool alive = reader.look(store, rank).alive(Clock::now(), interval);
      return at_least_over && !alive;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

Rendezvous::Rendezvous(const LaunchEnv& env, const CommOptions& options)
    : rank_(env.rank), world_size_(env.world_size), options_(options) {
  if (world_size_ == 1) return;
  ignore_broken_pipes();
  // c10d tells its retries and time-outs page by page; ours are told once, by our own errors.
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = 3;
  address_ = fmt::format("{}:{}", env.master_addr, env.master_port);
  hosts_store_ = env.rank == Rank(0) && !env.launcher_owns_store;
  if (options_.interface.empty()) options_.interface = env.socket_interface;
  if (options_.interface.empty()) {
    options_.interface = own_address_towards(env.master_addr, env.local_world_size == env.world_size);
  }
  const milliseconds limit = startup_limit();
  try {
    auto store = call_with_limit(limit + std::chrono::seconds(1), [env, limit] { return connect_store(env, limit); });
    if (!store) throw lost_store("connecting", startup_limit());
    store_ = share_store(*store);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (!hosts_store_) throw lost_store("connecting", startup_limit());
    throw RunError(
        fmt::format("[mesh] rank 0 cannot listen on port {}: {}. Hint: another job may use it; set "
                    "MASTER_PORT to a free port on every rank.",
                    env.master_port, first_line(error.what())));
  }
  start_monitor(env.launcher_owns_store ? "the launcher" : "rank 0");
}

Rendezvous::Rendezvous(std::shared_ptr<c10d::Store> store, Rank rank, int world_size, const CommOptions& options)
    : store_(std::move(store)), rank_(rank), world_size_(world_size), options_(options), address_("the given store") {
  if (options_.interface.empty()) options_.interface = "127.0.0.1";
  if (world_size_ == 1) return;
  ignore_broken_pipes();
  start_monitor("the test");
}

void Rendezvous::start_monitor(const std::string& store_host) {
  const milliseconds limit = startup_limit() + std::chrono::seconds(1);
  std::optional<StorePtr> own;
  try {
    own = call_with_limit(limit, [store = store_] { return store->clone(); });
  } catch (const std::exception&) {
  }
  if (!own) throw lost_store("connecting", startup_limit());
  monitor_ = std::make_shared<Monitor>(share_store(*own), rank_, options_.timeout, store_host);
}

void Rendezvous::tell_failure(const std::string& text) {
  if (!monitor_) return;
  const auto note = monitor_->leave_note(text, /*echo=*/false);
  if (!note || !hosts_store_) return;
  // The others look for the note several times a second, but on a busy machine. One that is lost never reads it.
  call_with_limit(options_.timeout + kNoteStay,
                  [store = store_, self = rank_, world = world_size_, timeout = options_.timeout] {
                    try {
                      wait_for_readers_of_note(*store, self, world, timeout, kNoteStay);
                    } catch (const std::exception&) {  // the store has ended: nobody can read
                    }
                    return true;
                  });
}

Rendezvous::~Rendezvous() = default;

milliseconds Rendezvous::startup_limit() const {
  return std::min(options_.timeout, options_.startup_limit);
}

PeerError Rendezvous::lost_store(const std::string& operation, milliseconds limit) const {
  return PeerError(
      fmt::format("[mesh] rank {}: {}: got no answer from the job's store at {}, expected one within {:g} "
                  "s. Hint: rank 0 or the launcher has ended or is stuck; see its own error, and check "
                  "that MASTER_ADDR and MASTER_PORT are the same, and reachable, on every rank.",
                  rank_.value(), operation, address_, std::chrono::duration<double>(limit).count()));
}

std::vector<std::string> Rendezvous::all_gather(const std::string& name, const std::string& value,
                                                std::optional<milliseconds> given_limit) {
  if (world_size_ == 1) return {value};
  const Limits limits{startup_limit(), given_limit.value_or(options_.timeout)};
  std::optional<Gathered> gathered;
  try {
    gathered = call_with_limit(
        limits.alive + std::chrono::seconds(1),
        [store = store_, name, value, limits, rank = rank_.value(), world = world_size_, hosts = hosts_store_] {
          Gathered all = gather_values(*store, name, rank, world, value, limits);
          store->add(name + "/read", 1);
          if (hosts) wait_for_readers(*store, name, world - static_cast<int>(all.missing.size()));
          return all;
        });
  } catch (const std::exception&) {
    throw lost_store(name, limits.alive);
  }
  if (!gathered) throw lost_store(name, limits.alive);
  if (!gathered->missing.empty()) {
    throw PeerError(
        fmt::format("[mesh] rank {}: {}: got no word from rank(s) {}, expected all {} ranks within {:g} s{}. "
                    "Hint: those ranks have ended, are stuck or were never started; see their own errors, or raise "
                    "--comm-timeout-seconds if loading takes longer.",
                    rank_.value(), name, fmt::join(gathered->missing, ", "), world_size_,
                    std::chrono::duration<double>(limits.silent).count(), gathered->story),
        /*echo=*/false);
  }
  return std::move(gathered->values);
}

std::vector<Rendezvous::Status> Rendezvous::agree(const std::string& name, const Status& mine,
                                                  std::optional<milliseconds> limit) {
  const std::string text = mine.error.empty() ? "" : fmt::format("{} {}", static_cast<int>(mine.code), mine.error);
  const std::vector<std::string> all = all_gather(name, text, limit);
  std::vector<Status> failures;
  for (int rank = 0; rank < world_size_; ++rank) {
    const std::string& status = all[rank];
    if (status.empty()) continue;
    int code = 0;
    const auto end = std::from_chars(status.data(), status.data() + status.size(), code).ptr;
    failures.push_back({Rank(rank), ExitCode(code), status.substr(end - status.data() + 1)});
  }
  return failures;
}

LaneComms Rendezvous::connect_lane(const std::vector<Rank>& lane, const std::string& name, c10::Device device) {
  if (lane.size() == 1) return single_rank_comms();
  const auto own = std::find(lane.begin(), lane.end(), rank_);
  RINGFOLD_ASSERT(own != lane.end(), fmt::format("rank {} is not in lane {}", rank_.value(), name));
  const LanePlace place{LaneRank(static_cast<int>(own - lane.begin())), lane, options_.timeout, monitor_};
  LanePlace starting = place;
  starting.timeout = startup_limit();
  const auto connect = [&](const char* purpose) {
    auto group =
        call_with_limit(starting.timeout + std::chrono::seconds(1),
                        [store = counted_store(store_), prefix = fmt::format("{}/{}", name, purpose), starting,
                         interface = options_.interface] { return connect_gloo(store, prefix, starting, interface); });
    if (!group) throw lost_store("connecting " + name, startup_limit());
    (*group)->setTimeout(place.timeout);
    return *group;
  };
  // Two groups: a reduction on the one never waits behind context-parallel traffic on the other.
  auto reductions = make_exchange_collectives(make_gloo_exchange(connect("reduce"), place), place.self, place.size());
  if (!device.is_cpu()) return connect_nccl_lane(store_, name, place, device, std::move(reductions));
  LaneComms comms;
  comms.exchange = make_gloo_exchange(connect("cp"), place);
  comms.collectives = std::move(reductions);
  return comms;
}

void require_equal(const std::vector<std::string>& by_rank, const std::string& what, const std::string& hint) {
  std::map<std::string, std::vector<int>> ranks_of;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) ranks_of[by_rank[rank]].push_back(static_cast<int>(rank));
  if (ranks_of.size() <= 1) return;
  // The majority is taken as right; of equally many, the value of rank 0.
  const auto& usual =
      std::max_element(ranks_of.begin(), ranks_of.end(), [&](const auto& a, const auto& b) {
        return std::pair(a.second.size(), -a.second.front()) < std::pair(b.second.size(), -b.second.front());
      })->first;
  std::vector<std::string> odd;
  for (const auto& [value, ranks] : ranks_of) {
    if (value != usual) odd.push_back(fmt::format("{} on rank(s) {}", value, fmt::join(ranks, ", ")));
  }
  throw UsageError(fmt::format("[mesh] {} differs between ranks: got {}, expected {} as on rank(s) {}. Hint: {}", what,
                               fmt::join(odd, "; "), usual, fmt::join(ranks_of[usual], ", "), hint));
}

}  // namespace ringfold
