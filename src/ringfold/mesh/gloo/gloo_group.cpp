#include "ringfold/mesh/gloo/gloo_group.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace ringfold {
namespace {

bool is_address(const std::string& text) {
  return text.find_first_of(".:") != std::string::npos;
}

}  // namespace

GroupPtr connect_gloo(const StorePtr& store, const std::string& prefix, const LanePlace& place,
                      const std::string& interface) {
  auto options = c10d::ProcessGroupGloo::Options::create(place.timeout);
  // One worker keeps collectives in the order in which they were issued.
  options->threads = 1;
  const auto begin = std::chrono::steady_clock::now();
  try {
    options->devices.push_back(is_address(interface) ? c10d::ProcessGroupGloo::createDeviceForHostname(interface)
                                                     : c10d::ProcessGroupGloo::createDeviceForInterface(interface));
  } catch (const std::exception& error) {
    throw RunError(
        fmt::format("[mesh] network interface: got '{}', expected an interface of this host. Hint: set "
                    "GLOO_SOCKET_IFNAME to one that `ip addr` lists and that reaches the other hosts.",
                    interface));
  }
  try {
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
    return c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, place.self.value(), place.size(), options);
  } catch (const std::exception& error) {
    throw connect_failure(place, std::chrono::steady_clock::now() - begin, error.what());
  }
}

}  // namespace ringfold
