// The lane's collectives, made of exchanges: each rank reduces its share of a tensor, adding the ranks' terms in rank
// order, and hands the result to the others. 2 (D-1)/D of the tensor leaves and reaches each rank. The bits depend on
// the values and the number of ranks alone, and a failure names the very peer.
#pragma once

#include <memory>

#include "ringfold/mesh/collectives.h"
#include "ringfold/mesh/exchange.h"

namespace ringfold {

// `exchange` is used for nothing else. Its lane has `size` > 1 ranks.
std::unique_ptr<Collectives> make_exchange_collectives(std::unique_ptr<Exchange> exchange, LaneRank self, int size);

}  // namespace ringfold
