// `ringfold simulate` and the page of `ringfold plan --html` from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/run_binary.h"

namespace ringfold {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

json simulate(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"simulate", "--json"});
  const Outcome outcome = run_binary(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? json::parse(outcome.out) : json();
}

TEST(Simulate, compares_policies_in_both_executions) {
  const json result = simulate({"--law", "prolong", "--samples", "64", "--world-size", "16"});
  EXPECT_EQ(result["schema"], 1);
  EXPECT_EQ(result["max_cp"], 8);
  ASSERT_EQ(result["policies"].size(), 8u);
  const json& first = result["policies"][0];
  EXPECT_EQ(first["speed_up_over_first"], 1.0);
  int64_t tokens = 0;
  for (const json& length : result["lengths"]) tokens += length.get<int64_t>();
  EXPECT_EQ(result["lengths"].size(), 64u);
  EXPECT_EQ(tokens, result["tokens"]);
  for (const json& row : result["policies"]) {
    EXPECT_GE(row["time_over_bound"].get<double>(), 1.0);
    EXPECT_EQ(row["idle_per_rank"].size(), 16u);
    EXPECT_LE(row["mean_idle"].get<double>(), row["worst_idle"].get<double>() + 1e-12);
  }
  // mixed is the fastest of each execution.
  for (const size_t mixed : {3u, 7u}) {
    for (size_t other = mixed - 3; other < mixed; ++other) {
      EXPECT_LE(result["policies"][mixed]["step_ms"].get<double>(), result["policies"][other]["step_ms"].get<double>());
    }
  }
}

TEST(Simulate, plays_the_batches_of_an_epoch) {
  const std::vector<std::string> common = {"--lengths",
                                           "900,100,2000,50,300,700,1200",
                                           "--max-tokens-per-gpu",
                                           "1024",
                                           "--world-size",
                                           "4",
                                           "--compare",
                                           "uniform,mixed",
                                           "--execution",
                                           "lockstep"};
  auto epoch = common;
  epoch.insert(epoch.end(), {"--global-batch-size", "3"});
  const json all = simulate(epoch);
  EXPECT_EQ(all["steps"], 3);
  EXPECT_EQ(all["tokens"], 5250);
  EXPECT_EQ(all["policies"].size(), 2u);
  epoch.insert(epoch.end(), {"--max-simulated-steps", "1"});
  EXPECT_EQ(simulate(epoch)["tokens"], 3000);
}

TEST(Simulate, noise_is_seeded_and_only_slows_lockstep_down) {
  const std::vector<std::string> arguments = {"--law",   "mm",   "--samples",   "128",      "--world-size", "16",
                                              "--noise", "0.05", "--execution", "lockstep", "--compare",    "static"};
  const json noisy = simulate(arguments);
  EXPECT_EQ(noisy, simulate(arguments));
  auto quiet = arguments;
  quiet[7] = "0";
  EXPECT_GT(noisy["policies"][0]["step_ms"].get<double>(), simulate(quiet)["policies"][0]["step_ms"].get<double>());
}

TEST(Simulate, refusals) {
  EXPECT_THAT(refusal({"simulate", "--law", "mn", "--world-size", "4"}),
              StartsWith("[flags] --law: got \"mn\", expected mm or rl"));
  EXPECT_THAT(refusal({"simulate", "--law", "mm", "--lengths", "4", "--world-size", "4"}),
              StartsWith("[flags] --law: got it beside --lengths"));
  EXPECT_THAT(refusal({"simulate", "--lengths", "4", "--world-size", "4"}), HasSubstr("--max-tokens-per-gpu"));
  EXPECT_THAT(refusal({"simulate", "--law", "mm"}), HasSubstr("--world-size: not given"));
  EXPECT_THAT(refusal({"simulate", "--law", "mm", "--world-size", "4", "--skip-passes", "serch"}),
              HasSubstr("did you mean \"search\"?"));
}

TEST(PlanPage, is_one_file_that_needs_nothing_else) {
  const auto file = std::filesystem::temp_directory_path() / ("ringfold_page_" + std::to_string(getpid()) + ".html");
  const Outcome outcome =
      run_binary({"plan", "--lengths", "4000,3000,900,800,700,20", "--world-size", "8", "--dynamic-context-parallel",
                  "--use-dynamic-batch-size", "--calculate-per-token-loss", "--rollout-max-context-len", "4096",
                  "--max-tokens-per-gpu", "1024", "--cp-policy", "mixed", "--html", file.string()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(file.string()));
  const std::string page = read_file(file.string());
  std::filesystem::remove(file);
  EXPECT_THAT(page, StartsWith("<!doctype html>"));
  for (const char* outside : {"http", "<script", "url(", "@import", "src="}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  for (const char* shown : {"prefers-color-scheme:dark", "sample 0: 4,000 tokens", "mixed, free", "Static CP = 4"}) {
    EXPECT_THAT(page, HasSubstr(shown));
  }
  EXPECT_THAT(refusal({"plan", "--lengths", "4", "--world-size", "1", "--html", "/no/such/folder/x.html"}, 4),
              HasSubstr("cannot write /no/such/folder/x.html"));
}

}  // namespace
}  // namespace ringfold
