// c10d asks for the host name of every peer, for its log lines, on the one thread that serves the store. Where the name
// server does not answer - a laptop without network, an isolated node - each connection would cost ten seconds. Our own
// definition comes before libc's for every library of the process and answers with the number.
#include <dlfcn.h>
#include <netdb.h>

extern "C" int getnameinfo(const sockaddr* address, socklen_t address_size, char* host, socklen_t host_size,
                           char* service, socklen_t service_size, int flags) {
  static const auto libc_getnameinfo = reinterpret_cast<decltype(&getnameinfo)>(dlsym(RTLD_NEXT, "getnameinfo"));
  return libc_getnameinfo(address, address_size, host, host_size, service, service_size, flags | NI_NUMERICHOST);
}
