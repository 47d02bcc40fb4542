// How errors name an exchange.
#pragma once

#include <string>

#include "ringfold/mesh/exchange.h"

namespace ringfold {

// "a context-parallel exchange (backward, layer 3, micro-step 1, step 20)", or a collective: "gradients (step 3)".
std::string exchange_name(const ExchangeKey& key);

}  // namespace ringfold
