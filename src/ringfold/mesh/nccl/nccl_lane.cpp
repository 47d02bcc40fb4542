#define USE_C10D_NCCL
#include "ringfold/mesh/nccl_lane.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "ringfold/base/log.h"
#include "ringfold/device/device.h"
#include "ringfold/mesh/exchange_name.h"
#include "ringfold/mesh/nccl/nccl_watch.h"
#include "ringfold/mesh/store.h"

namespace ringfold {
namespace {

using NcclPtr = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

constexpr std::chrono::seconds kAbortLimit{5};

// c10d's own watchdog would end the process with pages of text; NcclWatch takes its place.
void quiet_c10d() {
  for (const char* name : {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING",
                           "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_PROPAGATE_ERROR"}) {
    setenv(name, "0", /*overwrite=*/0);
  }
}

// The two communicators of a lane and the thread that watches both.
class NcclLane {
 public:
  NcclLane(const StorePtr& store, const std::string& prefix, LanePlace place, at::Device device)
      : place_(std::move(place)),
        device_(device),
        cp_(connect(store, prefix + "/nccl-cp")),
        reduce_(connect(store, prefix + "/nccl-reduce")),
        watch_(place_, [this] { abort(); }) {}

  // Only an unbroken lane can be closed in order: that waits for the peers.
  ~NcclLane() {
    if (watch_.has_failed()) return;
    if (std::uncaught_exceptions() > 0) {
      abort();
      return;
    }
    try {
      synchronize(device_);
      cp_->shutdown();
      reduce_->shutdown();
    } catch (const std::exception&) {
      abort();
    }
  }

  const LanePlace& place() const { return place_; }
  at::Device device() const { return device_; }
  c10d::ProcessGroupNCCL& cp() { return *cp_; }
  c10d::ProcessGroupNCCL& reduce() { return *reduce_; }
  NcclWatch& watch() { return watch_; }

 private:
  NcclPtr connect(const StorePtr& store, const std::string& prefix) {
    const auto begin = std::chrono::steady_clock::now();
    auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    options->timeout = place_.timeout + std::chrono::minutes(1);
    options->group_name = prefix;
    try {
      auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>(prefix, store),
                                                               place_.self.value(), place_.size(), options);
      group->setBoundDeviceId(device_);
      group->eagerConnectSingleDevice(device_);
      return group;
    } catch (const std::exception& error) {
      throw peer_failure(place_, "a peer", "connecting the GPUs of the lane", std::chrono::steady_clock::now() - begin,
                         error.what());
    }
  }

  // Both at once: NCCL may wait for the device while it ends one communicator, and the device for a kernel of the
  // other. The threads are left behind where not even that frees them.
  void abort() {
    std::vector<std::future<void>> ended;
    for (const NcclPtr& group : {cp_, reduce_}) {
      std::packaged_task<void()> end([group] {
        try {
          group->abort();
        } catch (const std::exception&) {  // it is broken already
        }
      });
      ended.push_back(end.get_future());
      std::thread(std::move(end)).detach();
    }
    const auto limit = std::chrono::steady_clock::now() + kAbortLimit;
    for (const std::future<void>& end : ended) end.wait_until(limit);
  }

  LanePlace place_;
  at::Device device_;
  NcclPtr cp_, reduce_;
  NcclWatch watch_;
};

class NcclPending : public PendingExchange {
 public:
  NcclPending(std::shared_ptr<NcclLane> lane, c10::intrusive_ptr<c10d::Work> work, StreamTimer& exposed)
      : lane_(std::move(lane)), work_(std::move(work)), exposed_(exposed) {}

  void wait() override {
    if (!work_) return;
    lane_->watch().check();
    exposed_.begin();
    work_->wait();
    exposed_.end();
    work_.reset();
  }

 private:
  std::shared_ptr<NcclLane> lane_;
  c10::intrusive_ptr<c10d::Work> work_;
  StreamTimer& exposed_;
};

class NcclExchange : public Exchange {
 public:
  explicit NcclExchange(std::shared_ptr<NcclLane> lane) : lane_(std::move(lane)), exposed_(lane_->device()) {}

  std::unique_ptr<PendingExchange> start(const CpGroup& group, std::span<const Transfer> transfers,
                                         const ExchangeKey& key) override {
    RINGFOLD_ASSERT(!group.is_single(), "a group of one exchanges nothing");
    RINGFOLD_ASSERT(group.member(group.index) == lane_->place().self, "the group is seen from another rank");
    lane_->watch().check();
    const auto begin = std::chrono::steady_clock::now();
    c10::intrusive_ptr<c10d::Work> work;
    try {
      // One grouped call: sends and receives of a rank can wait for one another in any order.
      lane_->cp().startCoalescing();
      for (const Transfer& transfer : transfers) {
        const int peer = group.member(transfer.peer).value();
        issue(transfer.recv, [&](auto& tensors) { lane_->cp().recv(tensors, peer, 0); });
        issue(transfer.send, [&](auto& tensors) {
          sent_bytes_ += static_cast<int64_t>(tensors[0].nbytes());
          lane_->cp().send(tensors, peer, 0);
        });
      }
      work = lane_->cp().endCoalescing();
    } catch (const std::exception& error) {
      throw peer_failure(lane_->place(), "a peer", exchange_name(key), std::chrono::steady_clock::now() - begin,
                         error.what());
    }
    if (work) lane_->watch().add(work, exchange_name(key));
    return std::make_unique<NcclPending>(lane_, std::move(work), exposed_);
  }

  Usage take_usage() override {
    const Usage usage{sent_bytes_, exposed_.take_ms() / 1e3};
    sent_bytes_ = 0;
    lane_->watch().check();
    return usage;
  }

 private:
  template <typename Call>
  static void issue(const at::Tensor& tensor, Call call) {
    if (!tensor.defined() || tensor.numel() == 0) return;
    RINGFOLD_ASSERT(tensor.is_contiguous() && tensor.is_cuda(), "exchanged tensors are contiguous and on the GPU");
    std::vector<at::Tensor> tensors{tensor};
    call(tensors);
  }

  std::shared_ptr<NcclLane> lane_;
  StreamTimer exposed_;
  int64_t sent_bytes_ = 0;
};

class NcclCollective : public PendingCollective {
 public:
  NcclCollective(std::shared_ptr<NcclLane> lane, c10::intrusive_ptr<c10d::Work> work)
      : lane_(std::move(lane)), work_(std::move(work)) {}
  void wait() override {
    lane_->watch().check();
    work_->wait();
  }

 private:
  std::shared_ptr<NcclLane> lane_;
  c10::intrusive_ptr<c10d::Work> work_;
};

// GPU tensors through NCCL, everything else as on a lane of CPUs. NCCL's sums are made once and handed round, so every
// rank has the same bits.
class NcclCollectives : public Collectives {
 public:
  NcclCollectives(std::shared_ptr<NcclLane> lane, std::unique_ptr<Collectives> host)
      : lane_(std::move(lane)), host_(std::move(host)) {}

  LaneRank rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void all_reduce_sum(at::Tensor& values, std::string_view what) override {
    if (!values.is_cuda()) return host_->all_reduce_sum(values, what);
    all_reduce(values, c10d::ReduceOp::SUM, what);
  }
  void all_reduce_max(at::Tensor& values, std::string_view what) override {
    if (!values.is_cuda()) return host_->all_reduce_max(values, what);
    all_reduce(values, c10d::ReduceOp::MAX, what);
  }
  void broadcast(at::Tensor& values, LaneRank root, std::string_view what) override {
    if (!values.is_cuda()) return host_->broadcast(values, root, what);
    std::vector<at::Tensor> tensors{values.detach()};
    c10d::BroadcastOptions options;
    options.rootRank = root.value();
    run(what, [&] { return lane_->reduce().broadcast(tensors, options); });
  }
  // In place, which NCCL allows where the own slice lies at its own place in the whole.
  std::unique_ptr<PendingCollective> start_reduce_scatter_sum(at::Tensor& values, std::string_view what) override {
    if (!values.is_cuda()) return host_->start_reduce_scatter_sum(values, what);
    RINGFOLD_ASSERT(values.is_contiguous(), "collectives take contiguous tensors");
    at::Tensor own = lane_slice(*this, values, rank().value()), whole = values.detach().view({-1});
    return std::make_unique<NcclCollective>(
        lane_,
        start(what, [&] { return lane_->reduce()._reduce_scatter_base(own, whole, c10d::ReduceScatterOptions()); }));
  }
  void all_gather(at::Tensor& values, std::string_view what) override {
    if (!values.is_cuda()) return host_->all_gather(values, what);
    RINGFOLD_ASSERT(values.is_contiguous(), "collectives take contiguous tensors");
    at::Tensor own = lane_slice(*this, values, rank().value()), whole = values.detach().view({-1});
    run(what, [&] { return lane_->reduce()._allgather_base(whole, own, c10d::AllgatherOptions()); });
  }
  void barrier(std::string_view what) override {
    synchronize(lane_->device());
    lane_->watch().check();
    host_->barrier(what);
  }
  std::vector<uint64_t> all_gather_u64(uint64_t value, std::string_view what) override {
    return host_->all_gather_u64(value, what);
  }
  std::vector<double> all_gather_double(double value, std::string_view what) override {
    return host_->all_gather_double(value, what);
  }

 private:
  void all_reduce(at::Tensor& values, c10d::ReduceOp::RedOpType operation, std::string_view what) {
    RINGFOLD_ASSERT(values.is_contiguous(), "collectives take contiguous tensors");
    std::vector<at::Tensor> tensors{values.detach()};
    c10d::AllreduceOptions options;
    options.reduceOp = operation;
    run(what, [&] { return lane_->reduce().allreduce(tensors, options); });
  }

  template <typename Call>
  void run(std::string_view what, Call call) {
    NcclCollective(lane_, start(what, call)).wait();
  }

  template <typename Call>
  c10::intrusive_ptr<c10d::Work> start(std::string_view what, Call call) {
    lane_->watch().check();
    const auto begin = std::chrono::steady_clock::now();
    try {
      c10::intrusive_ptr<c10d::Work> work = call();
      lane_->watch().add(work, std::string(what));
      return work;
    } catch (const std::exception& error) {
      throw peer_failure(lane_->place(), "a peer", what, std::chrono::steady_clock::now() - begin, error.what());
    }
  }

  std::shared_ptr<NcclLane> lane_;
  std::unique_ptr<Collectives> host_;
};

// NCCL connects two ranks at their first message; a plan must never be the first to need a pair.
void warm(Exchange& exchange, Collectives& collectives, const LanePlace& place, at::Device device) {
  const CpGroup lane{LaneRank(0), place.size(), place.self.value()};
  const at::Tensor mine = at::ones({1}, at::TensorOptions(at::kFloat).device(device));
  all_gather(exchange, lane, mine, {.what = "connecting the GPUs of the lane"});
  at::Tensor sum = mine.clone();
  collectives.all_reduce_sum(sum, "connecting the GPUs of the lane");
  synchronize(device);
  exchange.take_usage();
  RINGFOLD_ASSERT(sum.item<float>() == static_cast<float>(place.size()), "every rank counts once");
}

}  // namespace

LaneComms connect_nccl_lane(const std::shared_ptr<c10d::Store>& store, const std::string& prefix,
                            const LanePlace& place, at::Device device, std::unique_ptr<Collectives> host) {
  quiet_c10d();
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  const int64_t free_before = device_memory(device).free_bytes;
  const auto lane = std::make_shared<NcclLane>(counted_store(store), prefix, place, device);
  LaneComms comms;
  comms.exchange = std::make_unique<NcclExchange>(lane);
  comms.collectives = std::make_unique<NcclCollectives>(lane, std::move(host));
  const double connected_s = seconds();
  warm(*comms.exchange, *comms.collectives, place, device);
  if (place.self == LaneRank(0)) {
    log::info(fmt::format("ringfold: NCCL connected {} GPUs in {:.2f} s, first messages {:.2f} s, {:.0f} MB a GPU",
                          place.size(), connected_s, seconds() - connected_s,
                          static_cast<double>(free_before - device_memory(device).free_bytes) / 1e6));
  }
  return comms;
}

}  // namespace ringfold
