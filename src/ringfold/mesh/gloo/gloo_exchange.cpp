// CP traffic over Gloo. Gloo has no grouped calls and matches by tag: receives are posted first, so that no send waits
// for memory, and the tag holds the running number of the pair and direction, which both sides count alike.
#include <fmt/format.h>

#include "ringfold/mesh/exchange_name.h"
#include "ringfold/mesh/gloo/gloo_group.h"
#include "ringfold/mesh/gloo/peer_watch.h"

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

struct Operation {
  c10::intrusive_ptr<c10d::Work> work;
  LaneRank peer;
};

class GlooPending : public PendingExchange {
 public:
  GlooPending(const LanePlace& place, PeerWatch& watch, Exchange::Usage& usage, const ExchangeKey& key)
      : place_(place), watch_(watch), usage_(usage), key_(key) {}

  void add(Operation operation) { operations_.push_back(std::move(operation)); }

  void wait() override {
    const auto begin = Clock::now();
    for (const Operation& operation : operations_) wait_for(operation);
    operations_.clear();
    usage_.exposed_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  void wait_for(const Operation& operation) {
    const Wait wait(place_, operation.peer, key_);
    try {
      if (watch_.wait(*operation.work, operation.peer)) return;
    } catch (const std::exception&) {
      // Gloo says no more than that the connection is closed.
    }
    throw wait.failure();
  }

  const LanePlace& place_;
  PeerWatch& watch_;
  Exchange::Usage& usage_;
  ExchangeKey key_;
  std::vector<Operation> operations_;
};

class GlooExchange : public Exchange {
 public:
  GlooExchange(GroupPtr group, LanePlace place)
      : group_(std::move(group)), place_(std::move(place)), sent_(place_.size(), 0), received_(place_.size(), 0) {}

  std::unique_ptr<PendingExchange> start(const CpGroup& group, std::span<const Transfer> transfers,
                                         const ExchangeKey& key) override {
    RINGFOLD_ASSERT(!group.is_single(), "a group of one exchanges nothing");
    RINGFOLD_ASSERT(group.member(group.index) == place_.self, "the group is seen from another rank");
    RINGFOLD_ASSERT(group.first.value() >= 0 && group.first.value() + group.size <= place_.size(),
                    "the group leaves the lane");
    ExchangeKey own_key = key;
    if (!key.what.empty()) own_key.step = place_.monitor->step();  // a collective knows only its name
    auto pending = std::make_unique<GlooPending>(place_, watch_, usage_, own_key);
    for (const Transfer& transfer : transfers) {
      const LaneRank peer = peer_of(group, transfer);
      post(*pending, transfer.recv, peer, own_key, /*receives=*/true);
    }
    for (const Transfer& transfer : transfers) {
      const LaneRank peer = peer_of(group, transfer);
      post(*pending, transfer.send, peer, own_key, /*receives=*/false);
    }
    return pending;
  }

  Usage take_usage() override { return std::exchange(usage_, {}); }

 private:
  static LaneRank peer_of(const CpGroup& group, const Transfer& transfer) {
    RINGFOLD_ASSERT(transfer.peer >= 0 && transfer.peer < group.size && transfer.peer != group.index,
                    fmt::format("member {} exchanges with member {} of {}", group.index, transfer.peer, group.size));
    return group.member(transfer.peer);
  }

  // Gloo would fill a larger tensor in part, and abort on a smaller one; and ranks that have diverged would take each
  // other's numbers for their own. With size and name in the tag, ranks that disagree never match, and meet the
  // timeout.
  static int tag_of(uint32_t count, size_t size_bytes, const ExchangeKey& key) {
    uint64_t hash = size_bytes * 0x9e3779b97f4a7c15ULL;
    hash ^= key.what.empty() ? static_cast<uint64_t>(key.layer) << 8 | static_cast<uint64_t>(key.phase)
                             : std::hash<std::string_view>()(key.what);
    hash *= 0x9e3779b97f4a7c15ULL;
    return static_cast<int>((count & 0x7ffffU) << 12 | static_cast<uint32_t>((hash >> 32) % 0xfff));
  }

  // Both sides know the size, so both leave an empty transfer out, and out of the count.
  void post(GlooPending& pending, const at::Tensor& tensor, LaneRank peer, const ExchangeKey& key, bool receives) {
    if (!tensor.defined() || tensor.numel() == 0) return;
    RINGFOLD_ASSERT(tensor.is_contiguous() && tensor.is_cpu(), "exchanged tensors are contiguous and on the CPU");
    std::vector<at::Tensor> tensors{tensor};
    uint32_t& counter = (receives ? received_ : sent_)[peer.value()];
    const int tag = tag_of(counter++, tensor.nbytes(), key);
    try {
      pending.add(
          {receives ? group_->recv(tensors, peer.value(), tag) : group_->send(tensors, peer.value(), tag), peer});
    } catch (const std::exception&) {
      throw Wait(place_, peer, key).failure();
    }
    if (!receives) usage_.sent_bytes += static_cast<int64_t>(tensor.nbytes());
  }

  GroupPtr group_;
  LanePlace place_;
  PeerWatch watch_{group_, place_.monitor};
  Usage usage_;
  std::vector<uint32_t> sent_, received_;  // by lane rank
};

}  // namespace

std::unique_ptr<Exchange> make_gloo_exchange(GroupPtr group, LanePlace place) {
  return std::make_unique<GlooExchange>(std::move(group), std::move(place));
}

}  // namespace ringfold
