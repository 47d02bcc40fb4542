#include "ringfold/mesh/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

bool is_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

// Connecting a datagram socket sends nothing; it only asks the routing table.
std::optional<std::string> source_towards(const addrinfo& target) {
  const int fd = socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  const bool known = connect(fd, target.ai_addr, target.ai_addrlen) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  close(fd);
  if (!known) return std::nullopt;
  return numeric(reinterpret_cast<const sockaddr*>(&own), size);
}

std::optional<std::string> first_outside_address() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    return numeric(entry->ifa_addr, sizeof(sockaddr_in));
  }
  return std::nullopt;
}

}  // namespace

std::string own_address_towards(const std::string& host, bool one_host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // Any port: nothing is sent.
  if (getaddrinfo(host.c_str(), "9", &hints, &found) == 0) {
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    for (const addrinfo* target = found; target != nullptr; target = target->ai_next) {
      const auto own = source_towards(*target);
      if (own && !is_loopback(*own)) return *own;
    }
  }
  if (one_host) return "127.0.0.1";
  if (const auto outside = first_outside_address()) return *outside;
  throw RunError(
      fmt::format("[mesh] network: got no interface towards MASTER_ADDR={}, expected one that reaches the "
                  "other hosts. Hint: check MASTER_ADDR, or name the interface in GLOO_SOCKET_IFNAME.",
                  host));
}

std::string first_line(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  // gloo begins with "[/path/file.cc:123] ".
  if (const auto end = text.find("] "); text.starts_with("[/") && end != std::string_view::npos)
    text.remove_prefix(end + 2);
  return std::string(text);
}

}  // namespace ringfold
