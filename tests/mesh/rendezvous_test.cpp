#include "ringfold/mesh/rendezvous.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "dist/process_ranks.h"
#include "dist/thread_ranks.h"

namespace ringfold {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

CommOptions with_timeout(milliseconds timeout) {
  CommOptions options;
  options.timeout = timeout;
  return options;
}

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no failure";
}

uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

LaunchEnv env_of_two(uint16_t port) {
  LaunchEnv env;
  env.world_size = env.local_world_size = 2;
  env.master_port = port;
  return env;
}

TEST(Rendezvous, one_process_touches_nothing) {
  Rendezvous rendezvous(LaunchEnv{}, CommOptions{});
  EXPECT_TRUE(rendezvous.agree("start", {}).empty());
  const auto failures = rendezvous.agree("data", {Rank(0), ExitCode::kUsage, "bad line"});
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].error, "bad line");
  EXPECT_EQ(rendezvous.all_gather("digest", "abc"), std::vector<std::string>{"abc"});
  EXPECT_EQ(rendezvous.connect_lane({Rank(0)}, "lane").collectives->size(), 1);
}

TEST(Rendezvous, agree_brings_every_failure_to_every_rank) {
  run_ranks(4, [](RankContext& at) {
    EXPECT_TRUE(at.rendezvous.agree("flags", {at.rank, ExitCode::kOk, ""}).empty());
    Rendezvous::Status mine{at.rank, ExitCode::kOk, ""};
    if (at.rank.value() % 2 == 1)
      mine = {at.rank, ExitCode::kNoPlan, "12 no plan: rank " + std::to_string(at.rank.value())};
    const auto failures = at.rendezvous.agree("data", mine);
    ASSERT_EQ(failures.size(), 2U);
    EXPECT_EQ(failures[0].rank, Rank(1));
    EXPECT_EQ(failures[0].code, ExitCode::kNoPlan);
    EXPECT_EQ(failures[0].error, "12 no plan: rank 1");
    EXPECT_EQ(failures[1].rank, Rank(3));
    EXPECT_EQ(failures[1].error, "12 no plan: rank 3");
  });
}

TEST(Rendezvous, all_gather_returns_values_by_rank) {
  run_ranks(3, [](RankContext& at) {
    const auto values = at.rendezvous.all_gather("digest", std::string(at.rank.value(), 'x'));
    EXPECT_EQ(values, (std::vector<std::string>{"", "x", "xx"}));
  });
}

TEST(Rendezvous, ranks_that_never_come_are_named_after_the_limit) {
  std::vector<std::string> messages(4);
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(
      4,
      [&](RankContext& at) {
        if (at.rank == Rank(1) || at.rank == Rank(3)) return;
        messages[at.rank.value()] = failure_of([&] { at.rendezvous.agree("start", {at.rank, ExitCode::kOk, ""}); });
      },
      milliseconds(700));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  EXPECT_THAT(
      messages[0],
      testing::MatchesRegex(
          "\\[mesh\\] rank 0: start: got no word from rank\\(s\\) 1, 3, expected all 4 ranks within 0.7 s; rank 1 is "
          "alive and has been in starting for [0-9.]+ s; rank 3 is alive and has been in starting for [0-9.]+ s. Hint: "
          "those ranks have ended, are stuck or were never started; see their own errors, or raise "
          "--comm-timeout-seconds if loading takes longer."));
  EXPECT_THAT(messages[2], HasSubstr("rank 2: start: got no word from rank(s) 1, 3"));
}

TEST(Rendezvous, lanes_are_separate_and_number_their_members_from_zero) {
  run_ranks(4, [](RankContext& at) {
    // Two lanes, as with tensor parallel size 2: even and odd ranks.
    const int odd = at.rank.value() % 2;
    const auto comms = at.rendezvous.connect_lane({Rank(odd), Rank(odd + 2)}, "lane of tp " + std::to_string(odd));
    EXPECT_EQ(comms.collectives->rank(), LaneRank(at.rank.value() / 2));
    at::Tensor sum = at::full({1}, at.rank.value(), at::kLong);
    comms.collectives->all_reduce_sum(sum, "sum");
    EXPECT_EQ(sum.item<int64_t>(), 2 + 2 * odd);
    at.collectives.barrier("end");
  });
}

TEST(Rendezvous, rank_0_listens_when_no_launcher_does) {
  ProcessRanks ranks(env_of_two(free_port()), [](const LaunchEnv& env, const auto&) {
    Rendezvous rendezvous(env, with_timeout(std::chrono::seconds(10)));
    const auto values = rendezvous.all_gather("hello", "from " + std::to_string(env.rank.value()));
    auto comms = rendezvous.connect_lane({Rank(0), Rank(1)}, "lane");
    at::Tensor sum = at::ones({1});
    comms.collectives->all_reduce_sum(sum, "sum");
    return values[0] + ", " + values[1] + ", sum " + std::to_string(sum.item<int>());
  });
  EXPECT_EQ(ranks.report(0, 10000), "from 0, from 1, sum 2");
  EXPECT_EQ(ranks.report(1, 10000), "from 0, from 1, sum 2");
}

TEST(Rendezvous, the_host_of_the_store_waits_for_the_slow_reader) {
  ProcessRanks ranks(env_of_two(free_port()), [](const LaunchEnv& env, const auto&) {
    Rendezvous rendezvous(env, with_timeout(std::chrono::seconds(10)));
    // Rank 1 publishes last and reads last; rank 0 ends as soon as agree() returns.
    if (env.rank == Rank(1)) std::this_thread::sleep_for(milliseconds(300));
    return rendezvous.agree("data", {env.rank, ExitCode::kUsage, "bad"}).size() == 2 ? "both" : "not both";
  });
  EXPECT_EQ(ranks.report(0, 10000), "both");
  EXPECT_EQ(ranks.report(1, 10000), "both");
}

TEST(Rendezvous, a_store_that_nobody_hosts_is_an_error_with_the_address) {
  LaunchEnv env = env_of_two(free_port());
  env.rank = Rank(1);
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = failure_of([&] { Rendezvous rendezvous(env, with_timeout(milliseconds(1000))); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_THAT(message, HasSubstr("[mesh] rank 1: connecting: got no answer from the job's store at 127.0.0.1:" +
                                 std::to_string(env.master_port) + ", expected one within 1 s. Hint: "));
  EXPECT_THAT(message, HasSubstr("MASTER_PORT"));
}

TEST(Rendezvous, a_port_in_use_is_an_error_that_names_it) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto other_job = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  const std::string message =
      failure_of([&] { Rendezvous rendezvous(env_of_two(other_job->getPort()), with_timeout(milliseconds(1000))); });
  EXPECT_THAT(message, HasSubstr("[mesh] rank 0 cannot listen on port " + std::to_string(other_job->getPort()) + ": "));
  EXPECT_THAT(message, HasSubstr("Hint: another job may use it; set MASTER_PORT to a free port on every rank."));
}

TEST(Rendezvous, a_restarted_job_does_not_read_its_earlier_attempt) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto agent = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  for (int attempt = 0; attempt < 2; ++attempt) {
    LaunchEnv env = env_of_two(agent->getPort());
    env.launcher_owns_store = true;
    env.restart_count = attempt;
    ProcessRanks ranks(env, [attempt](const LaunchEnv& own, const auto&) {
      Rendezvous rendezvous(own, with_timeout(std::chrono::seconds(10)));
      const std::string value = std::to_string(attempt) + "/" + std::to_string(own.rank.value());
      const auto values = rendezvous.all_gather("start", value);
      return values[0] + " " + values[1];
    });
    const std::string expected = std::to_string(attempt) + "/0 " + std::to_string(attempt) + "/1";
    EXPECT_EQ(ranks.report(0, 10000), expected);
    EXPECT_EQ(ranks.report(1, 10000), expected);
  }
}

TEST(RequireEqual, accepts_equal_values) {
  require_equal({"a", "a", "a"}, "data digest", "same files?");
}

TEST(RequireEqual, names_the_ranks_in_the_minority_and_both_values) {
  EXPECT_EQ(
      failure_of([] {
        require_equal({"a", "b", "a", "b", "a"}, "data digest", "give all ranks one file.");
      }),
      "[mesh] data digest differs between ranks: got b on rank(s) 1, 3, expected a as on rank(s) 0, 2, 4. Hint: give "
      "all ranks one file.");
  // Of two equally common values that of rank 0 is taken as right, whatever their order.
  EXPECT_THAT(failure_of([] {
                require_equal({"b", "a"}, "plan", "h");
              }),
              HasSubstr("got a on rank(s) 1, expected b as on rank(s) 0."));
  EXPECT_THAT(failure_of([] {
                require_equal({"x", "y", "z", "x"}, "plan", "h");
              }),
              HasSubstr("got y on rank(s) 1; z on rank(s) 2, expected x as on rank(s) 0, 3."));
}

}  // namespace
}  // namespace ringfold
