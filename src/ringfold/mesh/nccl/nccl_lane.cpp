#define USE_C10D_NCCL
#include "ringfold/mesh/nccl_lane.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <optional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "ringfold/base/log.h"
#include "ringfold/device/device.h"
#include "ringfold/mesh/device_watch.h"
#include "ringfold/mesh/exchange_name.h"
#include "ringfold/mesh/process_end.h"
#include "ringfold/mesh/store.h"
#include "ringfold/mesh/threads.h"

namespace ringfold {
namespace {

using NcclPtr = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

constexpr std::chrono::seconds kAbortLimit{5};

// c10d's own watchdog would end the process with pages of text, and sleep for each failed work; DeviceWatch takes its
// place.
void quiet_c10d() {
  for (const char* name :
       {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_DUMP_ON_TIMEOUT",
        "TORCH_NCCL_PROPAGATE_ERROR", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"}) {
    setenv(name, "0", /*overwrite=*/0);
  }
}

// NCCL refuses two ranks on one GPU of a host: told that each is a host of its own, it joins them over sockets.
void share_gpus(LaneRank rank) {
  setenv("NCCL_HOSTID", fmt::format("rank {}", rank.value()).c_str(), /*overwrite=*/1);
  setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/0);
  setenv("NCCL_IB_DISABLE", "1", /*overwrite=*/0);
}

// Both at once: NCCL may wait for the device while it ends one communicator, and the device for a kernel of the other.
// The threads are left behind where not even that frees them.
void abort_groups(const std::vector<NcclPtr>& groups) {
  std::vector<std::future<void>> ended;
  for (const NcclPtr& group : groups) {
    ended.push_back(run_apart([group] {
      try {
        group->abort();
      } catch (const std::exception&) {  // it is broken already
      }
    }));
  }
  const auto limit = std::chrono::steady_clock::now() + kAbortLimit;
  for (const std::future<void>& end : ended) end.wait_until(limit);
}

constexpr std::chrono::seconds kStageLook{2};
// NCCL's own start-up, with all ranks at work on it, has at least this long.
constexpr std::chrono::seconds kStageLeast{60};

std::exception_ptr failure_of_stage(const LanePlace& place, const std::string& operation) {
  const Monitor& monitor = *place.monitor;
  if (!monitor.note()) {
    if (!monitor.device_wait_is_over()) return nullptr;
    const bool all_are_in_it = monitor.examine_device().cause == Monitor::Cause::kAllWait;
    if (all_are_in_it && monitor.device_waited() < kStageLeast) return nullptr;
  }
  return device_failure(place, operation, "");
}

// A blocking call of NCCL outside the watch, which ends only when all ranks have come: the process ends when another
// rank has told a failure, or nobody has got on for the timeout.
class Stage {
 public:
  Stage(const LanePlace& place, const std::string& operation)
      : monitor_(place.monitor), limit_(kStageLook, [place, operation] { return failure_of_stage(place, operation); }) {
    monitor_->device_waits(place.others(), operation);
  }
  ~Stage() { monitor_->device_is_free(); }

 private:
  std::shared_ptr<Monitor> monitor_;
  Deadline limit_;
};

// The two communicators of a lane and the thread that watches both.
class NcclLane {
 public:
  NcclLane(const StorePtr& store, const std::string& prefix, LanePlace place, at::Device device)
      : place_(std::move(place)),
        device_(device),
        cp_(connect(store, prefix + "/nccl-cp")),
        reduce_(connect(store, prefix + "/nccl-reduce")),
        watch_(std::in_place, place_, [groups = std::vector{cp_, reduce_}] { abort_groups(groups); }) {}

  // Only an unbroken lane can be closed in order: that waits for the peers.
  ~NcclLane() {
    const std::vector<NcclPtr> groups{cp_, reduce_};
    try {
      const bool unbroken = std::uncaught_exceptions() == 0;
      if (unbroken && !watch_->has_failed()) wait_for_stream(device_);
      if (watch_->has_failed()) return;
      watch_.reset();
      if (!unbroken) {
        abort_groups(groups);
        return;
      }
      const Stage closing(place_, "closing the communicators of the GPUs");
      for (const NcclPtr& group : groups) group->shutdown();
    } catch (const std::exception&) {
      abort_groups(groups);
    }
  }

  const LanePlace& place() const { return place_; }
  at::Device device() const { return device_; }
  c10d::ProcessGroupNCCL& cp() { return *cp_; }
  c10d::ProcessGroupNCCL& reduce() { return *reduce_; }
  DeviceWatch& watch() { return *watch_; }

 private:
  NcclPtr connect(const StorePtr& store, const std::string& prefix) {
    const std::string operation = "connecting the GPUs of the lane";
    auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    options->timeout = place_.timeout + std::chrono::minutes(1);
    options->group_name = prefix;
    const Stage connecting(place_, operation);
    std::string error;
    try {
      auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>(prefix, store),
                                                               place_.self.value(), place_.size(), options);
      group->setBoundDeviceId(device_);
      group->eagerConnectSingleDevice(device_);
      return group;
    } catch (const std::exception& failed) {
      error = failed.what();
    }
    const std::exception_ptr failure = device_failure(place_, operation, error);
    end_process_soon(failure);
    std::rethrow_exception(failure);
  }

  LanePlace place_;
  at::Device device_;
  NcclPtr cp_, reduce_;
  std::optional<DeviceWatch> watch_;
};

// What a rank has given its own device up to here, as work that hangs on no peer.
class Mark : public c10d::Work {
 public:
  explicit Mark(at::Device device) { event_.record(at::cuda::getCurrentCUDAStream(device.index())); }
  bool isCompleted() override { return event_.query(); }

 private:
  at::cuda::CUDAEvent event_;
};

class NcclPending : public PendingExchange {
 public:
  NcclPending(std::shared_ptr<NcclLane> lane, c10::intrusive_ptr<c10d::Work> work, std::string name,
              StreamTimer& exposed)
      : lane_(std::move(lane)), work_(std::move(work)), name_(std::move(name)), exposed_(exposed) {}

  void wait() override {
    if (!work_) return;
    exposed_.begin();
    lane_->watch().wait(*work_, name_);
    exposed_.end();
    work_.reset();
  }

 private:
  std::shared_ptr<NcclLane> lane_;
  c10::intrusive_ptr<c10d::Work> work_;
  std::string name_;
  StreamTimer& exposed_;
};

class NcclExchange : public Exchange {
 public:
  explicit NcclExchange(std::shared_ptr<NcclLane> lane) : lane_(std::move(lane)), exposed_(lane_->device()) {}

  std::unique_ptr<PendingExchange> start(const CpGroup& group, std::span<const Transfer> transfers,
                                         const ExchangeKey& key) override {
    RINGFOLD_ASSERT(!group.is_single(), "a group of one exchanges nothing");
    RINGFOLD_ASSERT(group.member(group.index) == lane_->place().self, "the group is seen from another rank");
    const std::string name = exchange_name(key);
    auto work =
        lane_->watch().issue(DeviceWatch::Stream::kExchange, name, [&] { return start_grouped(group, transfers); });
    return std::make_unique<NcclPending>(lane_, std::move(work), name, exposed_);
  }

  void mark() override {
    lane_->watch().issue(DeviceWatch::Stream::kOwn, "this rank's own work",
                         [&] { return c10::make_intrusive<Mark>(lane_->device()); });
  }

  Usage take_usage() override {
    const Usage usage{sent_bytes_, exposed_.take_ms() / 1e3};
    sent_bytes_ = 0;
    lane_->watch().check("the exchanges of a step");
    return usage;
  }

 private:
  // One grouped call: sends and receives of a rank can wait for one another in any order.
  c10::intrusive_ptr<c10d::Work> start_grouped(const CpGroup& group, std::span<const Transfer> transfers) {
    lane_->cp().startCoalescing();
    for (const Transfer& transfer : transfers) {
      const int peer = group.member(transfer.peer).value();
      issue(transfer.recv, [&](auto& tensors) { lane_->cp().recv(tensors, peer, 0); });
      issue(transfer.send, [&](auto& tensors) {
        sent_bytes_ += static_cast<int64_t>(tensors[0].nbytes());
        lane_->cp().send(tensors, peer, 0);
      });
    }
    return lane_->cp().endCoalescing();
  }

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
  NcclCollective(std::shared_ptr<NcclLane> lane, c10::intrusive_ptr<c10d::Work> work, std::string name)
      : lane_(std::move(lane)), work_(std::move(work)), name_(std::move(name)) {}
  void wait() override { lane_->watch().wait(*work_, name_); }

 private:
  std::shared_ptr<NcclLane> lane_;
  c10::intrusive_ptr<c10d::Work> work_;
  std::string name_;
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
    return start(what, [&] { return lane_->reduce()._reduce_scatter_base(own, whole, c10d::ReduceScatterOptions()); });
  }
  void all_gather(at::Tensor& values, std::string_view what) override {
    if (!values.is_cuda()) return host_->all_gather(values, what);
    RINGFOLD_ASSERT(values.is_contiguous(), "collectives take contiguous tensors");
    at::Tensor own = lane_slice(*this, values, rank().value()), whole = values.detach().view({-1});
    run(what, [&] { return lane_->reduce()._allgather_base(whole, own, c10d::AllgatherOptions()); });
  }
  void barrier(std::string_view what) override {
    wait_for_stream(lane_->device());
    lane_->watch().check(std::string(what));
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
    start(what, call)->wait();
  }

  template <typename Call>
  std::unique_ptr<PendingCollective> start(std::string_view what, Call call) {
    const std::string name = exchange_name({.step = lane_->place().monitor->step(), .what = what});
    auto work = lane_->watch().issue(DeviceWatch::Stream::kReduction, name, call);
    return std::make_unique<NcclCollective>(lane_, std::move(work), name);
  }

  std::shared_ptr<NcclLane> lane_;
  std::unique_ptr<Collectives> host_;
};

// NCCL connects two ranks at their first message, and those of a collective at its first call; a plan must never be the
// first to need them.
void warm(Exchange& exchange, Collectives& collectives, const LanePlace& place, at::Device device) {
  const std::string what = "the first messages of the GPUs";
  const CpGroup lane{LaneRank(0), place.size(), place.self.value()};
  const at::Tensor mine = at::ones({1}, at::TensorOptions(at::kFloat).device(device));
  all_gather(exchange, lane, mine, {.what = what});
  at::Tensor sum = mine.clone(), slices = at::ones({place.size()}, mine.options());
  collectives.all_reduce_sum(sum, what);
  collectives.reduce_scatter_sum(slices, what);
  collectives.all_gather(slices, what);
  collectives.broadcast(sum, LaneRank(0), what);
  wait_for_stream(device);
  exchange.take_usage();
  const auto expected = static_cast<float>(place.size());
  RINGFOLD_ASSERT(sum.item<float>() == expected && slices.eq(expected).all().item<bool>(), "every rank counts once");
}

}  // namespace

LaneComms connect_nccl_lane(const std::shared_ptr<c10d::Store>& store, const std::string& prefix,
                            const LanePlace& place, at::Device device, std::unique_ptr<Collectives> host) {
  quiet_c10d();
  if (ranks_share_gpus()) share_gpus(place.self);
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
