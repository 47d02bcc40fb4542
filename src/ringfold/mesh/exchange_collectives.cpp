#include "ringfold/mesh/exchange_collectives.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>

#include <algorithm>
#include <bit>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

// Bounds the buffers for the terms of the others.
constexpr int64_t kBlockElements = int64_t{1} << 22;

using Combine = void (*)(at::Tensor& into, const at::Tensor& term);

void add(at::Tensor& into, const at::Tensor& term) {
  into.add_(term);
}

class ExchangeCollectives : public Collectives {
 public:
  ExchangeCollectives(std::unique_ptr<Exchange> exchange, LaneRank self, int size)
      : exchange_(std::move(exchange)), lane_{LaneRank(0), size, self.value()} {}

  LaneRank rank() const override { return LaneRank(lane_.index); }
  int size() const override { return lane_.size; }

  void all_reduce_sum(at::Tensor& values, std::string_view what) override { all_reduce(values, add, what); }
  void all_reduce_max(at::Tensor& values, std::string_view what) override {
    all_reduce(
        values, [](at::Tensor& into, const at::Tensor& term) { at::maximum_out(into, into, term); }, what);
  }

  void broadcast(at::Tensor& values, LaneRank root, std::string_view what) override {
    for_each_block(values, [&](const at::Tensor& block) {
      std::vector<Transfer> transfers;
      if (rank() == root) {
        for (int i = 0; i < size(); ++i) {
          if (i != lane_.index) transfers.push_back({i, share(block, i), {}});
        }
      } else {
        transfers.push_back({root.value(), {}, share(block, lane_.index)});
      }
      exchange(transfers, what);
      share_out(shares_of(block), what);
    });
  }

  std::unique_ptr<PendingCollective> start_reduce_scatter_sum(at::Tensor& values, std::string_view what) override {
    for_each_block_of_slices(values, [&](const std::vector<at::Tensor>& slices) { reduce_own(slices, add, what); });
    return std::make_unique<DoneCollective>();
  }
  void all_gather(at::Tensor& values, std::string_view what) override {
    for_each_block_of_slices(values, [&](const std::vector<at::Tensor>& slices) { share_out(slices, what); });
  }

  void barrier(std::string_view what) override { all_gather_u64(0, what); }

  std::vector<uint64_t> all_gather_u64(uint64_t value, std::string_view what) override {
    std::vector<uint64_t> values;
    for (const at::Tensor& one : gather(at::full({1}, std::bit_cast<int64_t>(value), at::kLong), what)) {
      values.push_back(std::bit_cast<uint64_t>(*one.const_data_ptr<int64_t>()));
    }
    return values;
  }

  std::vector<double> all_gather_double(double value, std::string_view what) override {
    std::vector<double> values;
    for (const at::Tensor& one : gather(at::full({1}, value, at::kDouble), what)) {
      values.push_back(*one.const_data_ptr<double>());
    }
    return values;
  }

 private:
  template <typename Body>
  static void for_each_block(const at::Tensor& values, Body body) {
    RINGFOLD_ASSERT(values.is_contiguous(), "collectives take contiguous tensors");
    const at::Tensor flat = values.detach().view({-1});
    for (int64_t begin = 0; begin < flat.numel(); begin += kBlockElements) {
      body(flat.narrow(0, begin, std::min(kBlockElements, flat.numel() - begin)));
    }
  }

  // As many elements as a block, the same ones of every rank's slice.
  template <typename Body>
  void for_each_block_of_slices(const at::Tensor& values, Body body) const {
    RINGFOLD_ASSERT(values.is_contiguous(), "collectives take contiguous tensors");
    const int64_t slice = lane_slice(*this, values, 0).numel(), most = std::max<int64_t>(1, kBlockElements / size());
    for (int64_t begin = 0; begin < slice; begin += most) {
      std::vector<at::Tensor> slices;
      for (int i = 0; i < size(); ++i) {
        slices.push_back(lane_slice(*this, values, i).narrow(0, begin, std::min(most, slice - begin)));
      }
      body(slices);
    }
  }

  // The part of a block that rank i looks after; empty for some when there are fewer elements than ranks.
  at::Tensor share(const at::Tensor& block, int i) const {
    const int64_t begin = block.numel() * i / size();
    return block.narrow(0, begin, block.numel() * (i + 1) / size() - begin);
  }
  std::vector<at::Tensor> shares_of(const at::Tensor& block) const {
    std::vector<at::Tensor> shares;
    for (int i = 0; i < size(); ++i) shares.push_back(share(block, i));
    return shares;
  }

  void exchange(const std::vector<Transfer>& transfers, std::string_view what) {
    exchange_->start(lane_, transfers, {.what = what})->wait();
  }

  std::vector<at::Tensor> gather(const at::Tensor& mine, std::string_view what) {
    return ringfold::all_gather(*exchange_, lane_, mine, {.what = what});
  }

  // shares[i] is rank i's. Every rank's own is right; now all of them are right everywhere.
  void share_out(const std::vector<at::Tensor>& shares, std::string_view what) {
    std::vector<Transfer> transfers;
    for (int i = 0; i < size(); ++i) {
      if (i != lane_.index) transfers.push_back({i, shares[lane_.index], shares[i]});
    }
    exchange(transfers, what);
  }

  // shares[i] is this rank's term of what rank i reduces.
  void reduce_own(const std::vector<at::Tensor>& shares, Combine combine, std::string_view what) {
    const at::Tensor& own = shares[lane_.index];
    std::vector<at::Tensor> terms(size(), own);
    std::vector<Transfer> transfers;
    for (int i = 0; i < size(); ++i) {
      if (i == lane_.index) continue;
      terms[i] = at::empty_like(own);
      transfers.push_back({i, shares[i], terms[i]});
    }
    exchange(transfers, what);
    // Rank order, not order of arrival.
    at::Tensor result = terms[0].clone();
    for (int i = 1; i < size(); ++i) combine(result, terms[i]);
    own.copy_(result);
  }

  void all_reduce(const at::Tensor& values, Combine combine, std::string_view what) {
    for_each_block(values, [&](const at::Tensor& block) {
      const std::vector<at::Tensor> shares = shares_of(block);
      reduce_own(shares, combine, what);
      share_out(shares, what);
    });
  }

  std::unique_ptr<Exchange> exchange_;
  CpGroup lane_;  // all of it, seen from here
};

}  // namespace

at::Tensor lane_slice(const Collectives& collectives, const at::Tensor& values, int i) {
  RINGFOLD_ASSERT(values.numel() % collectives.size() == 0, "a slice of equal size for every rank");
  const int64_t size = values.numel() / collectives.size();
  return values.detach().view({-1}).narrow(0, i * size, size);
}

std::unique_ptr<Collectives> make_exchange_collectives(std::unique_ptr<Exchange> exchange, LaneRank self, int size) {
  return std::make_unique<ExchangeCollectives>(std::move(exchange), self, size);
}

}  // namespace ringfold
