// Ranks as threads of one process, over an in-memory store and real Gloo connections: for quick tests of parallel code.
//
//   run_ranks(4, [](RankContext& at) {
//     all_gather(at.exchange, at.group(0, 4), mine, ExchangeKey{});
//   });
//
// run_ranks returns when every rank has ended. A rank that throws closes its connections, which ends the others too;
// the first failure that is not the echo of another one is rethrown. ASSERT_* leaves only its own rank: the others then
// wait for the timeout, so prefer EXPECT_* inside a rank.
#pragma once

#include <ATen/Parallel.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "ringfold/mesh/rendezvous.h"
#include "ringfold/mesh/store.h"

namespace ringfold {

// One rank of a lane as wide as the world.
struct RankContext {
  Rank rank;
  LaneRank lane_rank;
  int world = 1;
  Exchange& exchange;
  Collectives& collectives;
  Rendezvous& rendezvous;

  // The aligned group of `size` ranks that holds this one.
  CpGroup group(int size) const { return {LaneRank(rank.value() / size * size), size, rank.value() % size}; }
};

namespace thread_ranks_detail {

// Keeps the failure that explains the others.
class FirstFailure {
 public:
  void record(std::exception_ptr failure, bool is_echo) {
    const std::lock_guard lock(mutex_);
    if (failure_ && (is_echo || !is_echo_)) return;
    failure_ = std::move(failure);
    is_echo_ = is_echo;
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;
  bool is_echo_ = false;
};

}  // namespace thread_ranks_detail

inline void run_ranks(int world, const std::function<void(RankContext&)>& body,
                      std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  // c10d's flight recorder is one for the process and not safe with several groups in threads: off.
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
  const auto store = share_store(c10::make_intrusive<c10d::HashStore>());
  std::vector<Rank> lane;
  for (int rank = 0; rank < world; ++rank) lane.emplace_back(rank);
  thread_ranks_detail::FirstFailure failure;
  // Outlives the threads: a rank that is done must not cut off the others.
  std::vector<LaneComms> comms(world);
  const auto run_rank = [&](int rank) {
    at::set_num_threads(1);
    CommOptions options;
    options.timeout = timeout;
    try {
      Rendezvous rendezvous(store, Rank(rank), world, options);
      comms[rank] = rendezvous.connect_lane(lane, "lane");
      RankContext context{Rank(rank), LaneRank(rank), world, *comms[rank].exchange, *comms[rank].collectives,
                          rendezvous};
      body(context);
    } catch (const PeerError&) {
      comms[rank] = {};
      failure.record(std::current_exception(), /*is_echo=*/true);
    } catch (...) {
      comms[rank] = {};
      failure.record(std::current_exception(), /*is_echo=*/false);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  failure.rethrow();
}

}  // namespace ringfold
