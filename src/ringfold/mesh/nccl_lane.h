// The communicators of a lane of GPUs (spec 4), on c10d's NCCL. NCCL matches messages by their order between two ranks
// and by nothing else, so one thread at a time issues them. Waiting never stops the host: the device's current stream
// waits. A twin file stands in where the program is built without NCCL.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "ringfold/mesh/peer_failure.h"
#include "ringfold/mesh/rendezvous.h"

namespace ringfold {

// One communicator for CP traffic and one for reductions, both connected at once, every pair of ranks warmed. `host`
// carries what lies on the CPU. `prefix` is unique to the lane. Throws PeerError after place.timeout.
LaneComms connect_nccl_lane(const std::shared_ptr<c10d::Store>& store, const std::string& prefix,
                            const LanePlace& place, at::Device device, std::unique_ptr<Collectives> host);

}  // namespace ringfold
