// Which of this host's addresses the other hosts can reach, and small helpers for library errors.
#pragma once

#include <string>
#include <string_view>

namespace ringfold {

// The address of this host on the way to `host` (a name or an address), loopback included when all ranks run here. On
// several hosts a loopback address - a host's own name may point there - gives way to the first other interface that is
// up. Throws RunError when there is none.
std::string own_address_towards(const std::string& host, bool one_host);

// The first line of a library's text, without the place in its source.
std::string first_line(std::string_view text);

}  // namespace ringfold
