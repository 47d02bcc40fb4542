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

// One communicator for CP traffic and one for reductions, connected one after the other; then every pair of ranks and
// every kind of collective sends its first message. `host` carries what lies on the CPU. `prefix` is unique to the
// lane. Throws PeerError when a peer is lost, RunError when NCCL fails here. Where NCCL does not come back - it
// connects in a blocking call - the process ends with such an error, place.timeout after the last sign of progress
// (60 s when all ranks are at it).
LaneComms connect_nccl_lane(const std::shared_ptr<c10d::Store>& store, const std::string& prefix,
                            const LanePlace& place, at::Device device, std::unique_ptr<Collectives> host);

}  // namespace ringfold
