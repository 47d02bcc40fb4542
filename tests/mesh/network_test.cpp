#include "ringfold/mesh/network.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>

namespace ringfold {
namespace {

TEST(Network, the_way_to_this_host_is_the_loopback_address) {
  EXPECT_EQ(own_address_towards("127.0.0.1", true), "127.0.0.1");
  EXPECT_EQ(own_address_towards("localhost", true), "127.0.0.1");
}

TEST(Network, several_hosts_never_get_a_loopback_address) {
  try {
    const std::string address = own_address_towards("127.0.1.1", false);
    EXPECT_FALSE(address.starts_with("127."));
    in_addr parsed{};
    EXPECT_EQ(inet_pton(AF_INET, address.c_str(), &parsed), 1) << address;
  } catch (const std::exception& error) {
    // A host without any other interface.
    EXPECT_THAT(error.what(), testing::HasSubstr("[mesh] network: got no interface towards MASTER_ADDR=127.0.1.1"));
  }
}

TEST(Network, no_library_waits_for_a_name_server) {
  // c10d finds the definition of this program, not libc's.
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "getnameinfo"), reinterpret_cast<void*>(&getnameinfo));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  char host[NI_MAXHOST];
  ASSERT_EQ(getnameinfo(reinterpret_cast<sockaddr*>(&address), sizeof address, host, sizeof host, nullptr, 0, 0), 0);
  EXPECT_STREQ(host, "127.0.0.1");
}

TEST(Network, library_texts_are_cut_to_their_first_line) {
  EXPECT_EQ(first_line("[/a/b/pair.cc:12] Connection closed\nframe #0: ..."), "Connection closed");
  EXPECT_EQ(first_line("plain"), "plain");
  EXPECT_EQ(first_line(""), "");
}

}  // namespace
}  // namespace ringfold
