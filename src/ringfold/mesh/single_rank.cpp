#include "ringfold/mesh/single_rank.h"

namespace ringfold {
namespace {

class NoExchange : public Exchange {
 public:
  std::unique_ptr<PendingExchange> start(const CpGroup&, std::span<const Transfer>, const ExchangeKey&) override {
    RINGFOLD_ASSERT(false, "a lane of one exchanges nothing");
    return nullptr;
  }
  Usage take_usage() override { return {}; }
};

class LocalCollectives : public Collectives {
 public:
  LaneRank rank() const override { return LaneRank(0); }
  int size() const override { return 1; }
  void all_reduce_sum(at::Tensor&, std::string_view) override {}
  void all_reduce_max(at::Tensor&, std::string_view) override {}
  void broadcast(at::Tensor&, LaneRank, std::string_view) override {}
  std::unique_ptr<PendingCollective> start_reduce_scatter_sum(at::Tensor&, std::string_view) override {
    return std::make_unique<DoneCollective>();
  }
  void all_gather(at::Tensor&, std::string_view) override {}
  void barrier(std::string_view) override {}
  std::vector<uint64_t> all_gather_u64(uint64_t value, std::string_view) override { return {value}; }
  std::vector<double> all_gather_double(double value, std::string_view) override { return {value}; }
};

}  // namespace

LaneComms single_rank_comms() {
  return {std::make_unique<NoExchange>(), std::make_unique<LocalCollectives>()};
}

}  // namespace ringfold
