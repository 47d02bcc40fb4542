// All context-parallel traffic of a lane goes through one Exchange. It owns the order: members of a group start the
// same exchanges in plan order, in forward, recompute and backward alike; nothing else identifies a message.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ringfold/mesh/mesh.h"

namespace ringfold {

enum class Phase { kForward, kRecompute, kBackward, kMerge };

// What an exchange belongs to, for messages and traces. The order alone matches exchanges; phase and layer, or the
// name, are compared so that ranks that have diverged do not match.
struct ExchangeKey {
  int64_t step = 0;
  int micro_step = 0;
  int layer = 0;
  Phase phase = Phase::kForward;
  std::string_view what = {};  // set: a lane-wide collective of this name, which outlives the exchange
};

// What this rank sends to and receives from one group member. An undefined tensor means "nothing". Tensors are
// contiguous and stay alive until wait() returns; sizes must match the peer's.
struct Transfer {
  int peer = 0;  // index in the group
  at::Tensor send;
  at::Tensor recv;
};

class PendingExchange {
 public:
  virtual ~PendingExchange() = default;
  // On the CPU: blocks until every transfer is done. On a GPU: the current stream waits for that, the host does not.
  // Throws PeerError naming rank, operation and step when a peer is lost, or nobody it hangs on gets on for the
  // communication timeout; on a GPU a later call may be the one that throws it.
  virtual void wait() = 0;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Starts one grouped exchange between members of the group. A group of one is our bug (asserted).
  virtual std::unique_ptr<PendingExchange> start(const CpGroup& group, std::span<const Transfer> transfers,
                                                 const ExchangeKey& key) = 0;
  // This rank begins another part of its work. On a GPU the ranks that wait for it see it get on when the device has
  // come so far; on the CPU the host's progress tells (mesh/monitor.h).
  virtual void mark() {}
  // Bytes sent by this rank and seconds spent blocked in wait() since the last call: the exposed communication.
  struct Usage {
    int64_t sent_bytes = 0;
    double exposed_seconds = 0;
  };
  virtual Usage take_usage() = 0;
};

// One hop of the ring: sends `send` to the next member (index + 1) and receives from the previous one into `recv`.
std::unique_ptr<PendingExchange> start_ring_hop(Exchange& exchange, const CpGroup& group, const at::Tensor& send,
                                                const at::Tensor& recv, const ExchangeKey& key);
// Every member's tensor by group index (own included, not copied). All have the shape of `mine`.
std::vector<at::Tensor> all_gather(Exchange& exchange, const CpGroup& group, const at::Tensor& mine,
                                   const ExchangeKey& key);
// parts[i] goes to member i; returns the sum of what all members sent here, added in group order (same bits each run).
at::Tensor reduce_scatter(Exchange& exchange, const CpGroup& group, std::span<const at::Tensor> parts,
                          const ExchangeKey& key);

// parts_c[i] goes to member i; returns what member i sent here at [i]. All members' parts have one shape.
at::Tensor all_to_all(Exchange& exchange, const CpGroup& group, const at::Tensor& parts_c, const ExchangeKey& key);

}  // namespace ringfold
