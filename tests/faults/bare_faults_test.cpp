// Faults without our launcher: each rank that can speak says in one line which rank was lost, doing what, in which
// step, and ends with code 4. The environment is the one that torchrun, mpirun and Slurm come down to; rank 0 hosts the
// store.
#include <gmock/gmock.h>

#include "faults/job.h"

namespace ringfold {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

constexpr double kTimeout = 3;
constexpr double kSlack = 4;

class BareJob : public Job {
 protected:
  using Ranks = std::vector<std::unique_ptr<Process>>;

  // Flags of rank r: flags_of(r).
  Ranks start(const std::function<Strings(int)>& flags_of, const std::string& fault = "") {
    const std::string port = std::to_string(free_port());
    Ranks ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      Variables environment = {{"RANK", std::to_string(rank)},
                               {"WORLD_SIZE", std::to_string(kRanks)},
                               {"LOCAL_RANK", std::to_string(rank)},
                               {"LOCAL_WORLD_SIZE", std::to_string(kRanks)},
                               {"MASTER_ADDR", "127.0.0.1"},
                               {"MASTER_PORT", port},
                               {"RINGFOLD_FAULT", fault}};
      ranks.push_back(std::make_unique<Process>(folder_, fmt::format("rank{}", rank),
                                                Strings{RINGFOLD_BINARY} + flags_of(rank), environment));
    }
    return ranks;
  }
  Ranks start(const Strings& flags, const std::string& fault = "") {
    return start([&](int) { return flags; }, fault);
  }
};

struct Case {
  int rank;
  std::string stage, action;
};

class BareFault : public BareJob, public testing::WithParamInterface<Case> {};

TEST_P(BareFault, every_rank_that_can_speak_names_the_lost_one) {
  const auto& [lost, stage, action] = GetParam();
  const std::string at = fmt::format("{}:2:{}:", lost, stage);
  const Ranks ranks = start(train_flags(timeout(kTimeout)), fmt::format("{0}slow:0.7,{0}{1}", at, action));
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == lost && action != "fail") continue;
    const int code = ranks[rank]->wait(kHangSeconds);
    const std::string errors = ranks[rank]->errors();
    EXPECT_EQ(code, 4) << "rank " << rank << ": " << errors;
    EXPECT_LT(waited_seconds(errors), (action == "stop" ? kTimeout : 0) + kSlack) << errors;
    const Strings lines = lines_of(errors);
    ASSERT_EQ(lines.size(), 1U) << "rank " << rank << ": " << errors;
    EXPECT_THAT(lines[0], MatchesRegex("ringfold: error: .*")) << "rank " << rank;
    EXPECT_THAT(lines[0], HasSubstr(fmt::format("rank {}", lost))) << "rank " << rank;
    EXPECT_THAT(lines[0], HasSubstr("step 2)")) << "rank " << rank;
    if (action == "fail") {
      EXPECT_THAT(lines[0], HasSubstr("failed on purpose")) << "rank " << rank;
    }
    if (action == "kill") {
      EXPECT_THAT(lines[0], HasSubstr("Hint: ")) << "rank " << rank;
      EXPECT_THAT(lines[0], testing::Not(HasSubstr("is alive"))) << "rank " << rank;
    }
    // The host of the store cannot be asked where it is when it does not answer.
    if (action == "stop" && lost != 0) {
      EXPECT_THAT(lines[0], HasSubstr(fmt::format("rank {} was last heard of", lost))) << "rank " << rank;
      EXPECT_THAT(lines[0], HasSubstr("in " + stage)) << "rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, BareFault,
                         testing::Values(Case{2, "forward", "kill"}, Case{2, "forward", "stop"},
                                         Case{2, "backward", "fail"}, Case{2, "reduction", "stop"},
                                         Case{0, "forward", "kill"}, Case{0, "reduction", "stop"},
                                         Case{0, "logging", "fail"}),
                         [](const auto& at) {
                           return fmt::format("rank_{}_{}_{}", at.param.rank, at.param.stage, at.param.action);
                         });

TEST_F(BareJob, one_ranks_different_flag_is_named_before_the_first_step) {
  const Ranks ranks = start([&](int rank) {
    return train_flags(timeout(20)) + (rank == 2 ? Strings{"--weight-decay", "0.5"} : Strings{});
  });
  std::string all;
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->wait(kHangSeconds), 2) << rank->errors();
    all += rank->errors();
  }
  EXPECT_EQ(all,
            "ringfold: error: [mesh] --weight-decay differs between ranks: got 0.5 on rank(s) 2, expected 0 as on "
            "rank(s) 0, 1, 3. Hint: every rank must get the same flags, recipe and data file\n");
}

TEST_F(BareJob, one_ranks_wrong_flag_is_told_once_and_ends_all) {
  const Ranks ranks = start([&](int rank) {
    return train_flags(timeout(20)) + (rank == 1 ? Strings{"--lr", "fast"} : Strings{});
  });
  std::string all;
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->wait(kHangSeconds), 2) << rank->errors();
    all += rank->errors();
  }
  EXPECT_THAT(all, MatchesRegex("ringfold: error: \\(rank 1\\) \\[flags\\] --lr: got \"fast\", expected [^\n]+\n"));
}

TEST_F(BareJob, one_ranks_broken_data_file_is_named_with_rank_and_line) {
  std::string text = text_of(folder_ / "data.jsonl");
  const size_t line_5 = text.find('\n', text.find('\n', text.find('\n', text.find('\n') + 1) + 1) + 1) + 1;
  std::ofstream(folder_ / "torn.jsonl") << text.substr(0, line_5 + 20) << '\n'
                                        << text.substr(text.find('\n', line_5) + 1);
  const Ranks ranks = start([&](int rank) {
    return train_flags(timeout(20)) + (rank == 3 ? Strings{"--data", folder_ / "torn.jsonl"} : Strings{});
  });
  std::string all;
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->wait(kHangSeconds), 2) << rank->errors();
    all += rank->errors();
  }
  EXPECT_THAT(all, MatchesRegex("ringfold: error: \\(rank 3\\) \\[data\\] [^\n]*torn.jsonl:5[^\n]+\n"));
}

TEST_F(BareJob, one_ranks_other_data_is_named_before_the_first_step) {
  write_data("other.jsonl", 2);
  const Ranks ranks = start([&](int rank) {
    return train_flags(timeout(20)) + (rank == 1 ? Strings{"--data", folder_ / "other.jsonl"} : Strings{});
  });
  std::string all;
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->wait(kHangSeconds), 2) << rank->errors();
    all += rank->errors();
  }
  EXPECT_THAT(
      all, MatchesRegex("ringfold: error: \\[mesh\\] data digest differs between ranks: got [0-9a-f]+ \\(16 samples, "
                        "675 tokens\\) on rank\\(s\\) 1, expected [^\n]+\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "metrics.jsonl"));
}

TEST_F(BareJob, a_slow_rank_that_gets_on_is_waited_for_beyond_the_timeout) {
  // Three micro-steps of 2 s each; the others wait 6 s for it, twice the timeout.
  const auto begin = std::chrono::steady_clock::now();
  const Ranks ranks = start(train_flags(timeout(3) + Strings{"--max-steps", "2"}), "2:2:forward:slow:2");
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->wait(kHangSeconds), 0) << rank->errors();
    EXPECT_EQ(rank->errors(), "");
  }
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  EXPECT_EQ(lines_of(text_of(folder_ / "run" / "metrics.jsonl")).size(), 2U);
}

}  // namespace
}  // namespace ringfold
