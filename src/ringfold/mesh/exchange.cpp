// The exchanges every CP scheme is made of, over any backend.
#include "ringfold/mesh/exchange.h"

#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include "ringfold/base/error.h"

namespace ringfold {

std::unique_ptr<PendingExchange> start_ring_hop(Exchange& exchange, const CpGroup& group, const at::Tensor& send,
                                                const at::Tensor& recv, const ExchangeKey& key) {
  RINGFOLD_ASSERT(send.nbytes() == recv.nbytes(),
                  fmt::format("ring hop sends {} and receives {} bytes", send.nbytes(), recv.nbytes()));
  const int next = (group.index + 1) % group.size;
  const int previous = (group.index + group.size - 1) % group.size;
  std::vector<Transfer> transfers;
  if (next == previous) {
    transfers.push_back({next, send, recv});
  } else {
    transfers.push_back({next, send, {}});
    transfers.push_back({previous, {}, recv});
  }
  return exchange.start(group, transfers, key);
}

std::vector<at::Tensor> all_gather(Exchange& exchange, const CpGroup& group, const at::Tensor& mine,
                                   const ExchangeKey& key) {
  if (group.is_single()) return {mine};
  std::vector<at::Tensor> gathered(group.size, mine);
  std::vector<Transfer> transfers;
  for (int i = 0; i < group.size; ++i) {
    if (i == group.index) continue;
    gathered[i] = at::empty_like(mine, at::MemoryFormat::Contiguous);
    transfers.push_back({i, mine, gathered[i]});
  }
  exchange.start(group, transfers, key)->wait();
  return gathered;
}

at::Tensor reduce_scatter(Exchange& exchange, const CpGroup& group, std::span<const at::Tensor> parts,
                          const ExchangeKey& key) {
  RINGFOLD_ASSERT(static_cast<int>(parts.size()) == group.size,
                  fmt::format("{} parts for a group of {}", parts.size(), group.size));
  const at::Tensor& own = parts[group.index];
  if (group.is_single()) return own;
  std::vector<at::Tensor> received(group.size, own);
  std::vector<Transfer> transfers;
  for (int i = 0; i < group.size; ++i) {
    if (i == group.index) continue;
    received[i] = at::empty_like(own, at::MemoryFormat::Contiguous);
    transfers.push_back({i, parts[i], received[i]});
  }
  exchange.start(group, transfers, key)->wait();
  // Group order, not order of arrival: the same bits on every run.
  at::Tensor sum = received[0].clone();
  for (int i = 1; i < group.size; ++i) sum.add_(received[i]);
  return sum;
}

at::Tensor all_to_all(Exchange& exchange, const CpGroup& group, const at::Tensor& parts_c, const ExchangeKey& key) {
  RINGFOLD_ASSERT(parts_c.size(0) == group.size && parts_c.is_contiguous(),
                  fmt::format("{} parts for a group of {}", parts_c.size(0), group.size));
  if (group.is_single()) return parts_c;
  const at::Tensor received_c = at::empty_like(parts_c);
  std::vector<Transfer> transfers;
  for (int i = 0; i < group.size; ++i) {
    if (i != group.index) transfers.push_back({i, parts_c[i], received_c[i]});
  }
  const auto pending = exchange.start(group, transfers, key);
  received_c[group.index].copy_(parts_c[group.index]);
  pending->wait();
  return received_c;
}

}  // namespace ringfold
