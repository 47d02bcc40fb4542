// The communicators of a lane of one: they touch no backend.
#pragma once

#include "ringfold/mesh/rendezvous.h"

namespace ringfold {

LaneComms single_rank_comms();

}  // namespace ringfold
