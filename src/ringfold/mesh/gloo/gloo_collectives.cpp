// Lane-wide collectives over Gloo. Gloo's all-reduce is a ring of fixed segments: each segment is added in one order,
// on one rank, then copied to the others, so the bits are the same everywhere and on every run (tested).
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <bit>

#include "ringfold/mesh/gloo/gloo_group.h"

namespace ringfold {
namespace {

class GlooCollectives : public Collectives {
 public:
  GlooCollectives(GroupPtr group, LanePlace place) : group_(std::move(group)), place_(std::move(place)) {}

  LaneRank rank() const override { return place_.self; }
  int size() const override { return place_.size(); }

  void all_reduce_sum(at::Tensor& values, std::string_view what) override {
    all_reduce(values, c10d::ReduceOp::SUM, what);
  }
  void all_reduce_max(at::Tensor& values, std::string_view what) override {
    all_reduce(values, c10d::ReduceOp::MAX, what);
  }

  void broadcast(at::Tensor& values, LaneRank root, std::string_view what) override {
    if (!check(values)) return;
    std::vector<at::Tensor> tensors{values};
    c10d::BroadcastOptions options;
    options.rootRank = root.value();
    complete(what, [&] { return group_->broadcast(tensors, options); });
  }

  void barrier(std::string_view what) override {
    complete(what, [&] { return group_->barrier(c10d::BarrierOptions()); });
  }

  std::vector<uint64_t> all_gather_u64(uint64_t value, std::string_view what) override {
    const at::Tensor all = gather(at::full({1}, std::bit_cast<int64_t>(value), at::kLong), what);
    const auto* data = all.const_data_ptr<int64_t>();
    std::vector<uint64_t> values;
    for (int i = 0; i < size(); ++i) values.push_back(std::bit_cast<uint64_t>(data[i]));
    return values;
  }

  std::vector<double> all_gather_double(double value, std::string_view what) override {
    const at::Tensor all = gather(at::full({1}, value, at::kDouble), what);
    const auto* data = all.const_data_ptr<double>();
    return {data, data + size()};
  }

 private:
  // False: nothing to do.
  static bool check(const at::Tensor& values) {
    RINGFOLD_ASSERT(values.is_contiguous() && values.is_cpu(), "collectives take contiguous tensors on the CPU");
    return values.numel() > 0;
  }

  void all_reduce(at::Tensor& values, c10d::ReduceOp::RedOpType op, std::string_view what) {
    if (!check(values)) return;
    std::vector<at::Tensor> tensors{values};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    complete(what, [&] { return group_->allreduce(tensors, options); });
  }

  at::Tensor gather(at::Tensor mine, std::string_view what) {
    at::Tensor all = at::empty({size()}, mine.options());
    complete(what, [&] { return group_->_allgather_base(all, mine, c10d::AllgatherOptions()); });
    return all;
  }

  template <typename Start>
  void complete(std::string_view what, Start start) {
    const auto begin = std::chrono::steady_clock::now();
    try {
      start()->wait();
    } catch (const std::exception& error) {
      throw peer_failure(place_, "a peer", what, std::chrono::steady_clock::now() - begin, error.what());
    }
  }

  GroupPtr group_;
  LanePlace place_;
};

}  // namespace

std::unique_ptr<Collectives> make_gloo_collectives(GroupPtr group, LanePlace place) {
  return std::make_unique<GlooCollectives>(std::move(group), std::move(place));
}

}  // namespace ringfold
