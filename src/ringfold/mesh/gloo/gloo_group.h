// One c10d Gloo process group. ProcessGroupGloo.hpp is included by gloo_group.cpp alone: the wheel carries it without
// the gloo headers it needs, so those come from the system while the code comes from libtorch_cpu.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "ringfold/mesh/exchange.h"
#include "ringfold/mesh/peer_failure.h"
#include "ringfold/mesh/store.h"

namespace ringfold {

using GroupPtr = c10::intrusive_ptr<c10d::Backend>;

// Connects every pair of the lane. `prefix` is unique to the group; `interface` names a network interface or is an
// address of this host. Blocks until all have come; throws PeerError after place.timeout.
GroupPtr connect_gloo(const StorePtr& store, const std::string& prefix, const LanePlace& place,
                      const std::string& interface);

std::unique_ptr<Exchange> make_gloo_exchange(GroupPtr group, LanePlace place);

}  // namespace ringfold
