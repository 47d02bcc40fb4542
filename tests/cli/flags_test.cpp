// What the command line accepts and how it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cli/run_binary.h"

namespace ringfold {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::vector<std::string> kCommands = {"plan",  "simulate", "train",  "logprob", "parity",
                                            "bench", "rl",       "report", "convert", "launch"};

TEST(Cli, program_help_and_version) {
  for (const char* flag : {"--help", "-h", "help"}) {
    const Outcome outcome = run_binary({flag});
    EXPECT_EQ(outcome.code, 0);
    for (const std::string& command : kCommands) EXPECT_THAT(outcome.out, HasSubstr("\n  " + command + " "));
    EXPECT_THAT(outcome.out, HasSubstr("Example:\n  ringfold plan --lengths"));
    EXPECT_EQ(outcome.err, "");
  }
  EXPECT_THAT(run_binary({"--version"}).out, StartsWith("ringfold 0."));
}

TEST(Cli, every_subcommand_has_help_with_an_example) {
  for (const std::string& command : kCommands) {
    const Outcome outcome = run_binary({command, "--help"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.out, HasSubstr("Usage: ringfold " + command));
    EXPECT_THAT(outcome.out, HasSubstr("Example:\n  ringfold "));
    EXPECT_EQ(outcome.out.find("\n  --config ") != std::string::npos, command != "launch");
    EXPECT_THAT(outcome.out, Not(HasSubstr("--sequence-parallel"))) << "flags that are not built are not advertised";
  }
}

// Runs the example that a subcommand's help shows.
Outcome run_example(const std::string& command) {
  const std::string help = run_binary({command, "--help"}).out;
  std::istringstream words(help.substr(help.find("Example:") + 8));
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  arguments.erase(arguments.begin());
  return run_binary(arguments);
}

TEST(Cli, the_examples_without_a_model_work) {
  const Outcome plan = run_example("plan");
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("micro-step 0"));
  const Outcome simulate = run_example("simulate");
  EXPECT_EQ(simulate.code, 0) << simulate.err;
  EXPECT_THAT(simulate.out, HasSubstr("mixed, free"));
}

TEST(Cli, subcommands_that_are_unknown_or_not_built) {
  EXPECT_THAT(refusal({}), StartsWith("[flags] no subcommand. Hint: see ringfold --help"));
  EXPECT_THAT(refusal({"trian"}), AllOf(HasSubstr("unknown subcommand \"trian\""), HasSubstr("did you mean train?")));
  EXPECT_THAT(refusal({"--json"}), HasSubstr("unknown subcommand \"--json\""));
}

TEST(Cli, unknown_flags_name_the_nearest) {
  EXPECT_EQ(refusal({"plan", "--max-token-per-gpu", "8"}),
            "[flags] unknown flag --max-token-per-gpu. Hint: did you mean --max-tokens-per-gpu?");
  EXPECT_EQ(refusal({"train", "--max_tokens_per_gpu=8"}),
            "[flags] unknown flag --max_tokens_per_gpu. Hint: did you mean --max-tokens-per-gpu?");
  EXPECT_EQ(refusal({"plan", "--qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"}),
            "[flags] unknown flag --qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq. Hint: see ringfold plan --help");
  EXPECT_EQ(refusal({"plan", "-q"}), "[flags] unknown flag -q. Hint: see ringfold plan --help");
}

TEST(Cli, flags_of_another_subcommand_are_refused) {
  EXPECT_EQ(refusal({"plan", "--lr", "1"}), "[flags] --lr: belongs to train, rl, not to plan");
  EXPECT_THAT(
      refusal({"train", "--world-size", "4"}),
      StartsWith("[flags] --world-size: belongs to plan, not to train. Hint: the launcher says how many ranks"));
  EXPECT_THAT(refusal({"bench", "--cp-policy", "static"}), HasSubstr("belongs to plan, train, logprob, parity"));
}

TEST(Cli, launch_says_where_the_subcommand_goes) {
  EXPECT_EQ(
      refusal({"launch", "-n", "2", "train", "--config", "run.toml"}),
      "[launch] train: got a subcommand without '--' in front, expected it behind '--'. Hint: ringfold launch -n N "
      "-- train --config run.toml");
  EXPECT_EQ(refusal({"launch", "-n", "2", "--config", "run.toml"}),
            "[launch] --config: got a flag of the subcommand without '--' in front, expected it behind '--'. Hint: "
            "ringfold launch -n N -- train --config FILE.toml");
  EXPECT_THAT(refusal({"launch", "--config=run.toml", "-n", "2", "--", "parity"}),
              HasSubstr("Hint: ringfold launch -n N -- parity --config FILE.toml"));
}

TEST(Cli, values_that_are_missing_or_wrong) {
  EXPECT_EQ(refusal({"plan", "--world-size"}), "[flags] --world-size: got no value, expected one");
  EXPECT_EQ(refusal({"plan", "--world-size", "--json"}), "[flags] --world-size: got no value but --json, expected one");
  EXPECT_EQ(refusal({"plan", "--json=false"}), "[flags] --json: takes no value");
  EXPECT_EQ(refusal({"plan", "--world-size", "4x"}),
            "[flags] --world-size: got \"4x\", expected an integer from 1 to 1048576");
  EXPECT_EQ(refusal({"plan", "--world-size", "-4"}),
            "[flags] --world-size: got \"-4\", expected an integer from 1 to 1048576");
  EXPECT_EQ(refusal({"plan", "--world-size", "99999999999999999999"}),
            "[flags] --world-size: got \"99999999999999999999\", expected an integer from 1 to 1048576");
  EXPECT_EQ(refusal({"plan", "--seed", "-1"}), "[flags] --seed: got \"-1\", expected an integer from 0 to 2^64 - 1");
  EXPECT_EQ(refusal({"train", "--max-steps", "0"}), "[flags] --max-steps: got \"0\", expected an integer >= 1");
  EXPECT_EQ(refusal({"train", "--lr", "-1e-3"}), "[flags] --lr: got \"-1e-3\", expected a number >= 0");
  for (const std::string word : {"nan", "inf", "", "1e999", "1e-4x"}) {
    EXPECT_EQ(refusal({"train", "--lr=" + word + (word.empty() ? " " : "")}),
              "[flags] --lr: got \"" + word + (word.empty() ? " " : "") + "\", expected a number >= 0");
  }
  EXPECT_EQ(refusal({"train", "--eps-clip", "2"}), "[flags] --eps-clip: got \"2\", expected a number from 0 to 1");
  EXPECT_EQ(
      refusal({"plan", "--cp-policy", "unifrm"}),
      "[flags] --cp-policy: got \"unifrm\", expected static or uniform or mixed. Hint: did you mean \"uniform\"?");
  EXPECT_EQ(refusal({"train", "--shuffle", "--no-shuffle"}),
            "[flags] --shuffle and --no-shuffle: got both, expected one of them");
  EXPECT_EQ(refusal({"bench", "--policies", "static,"}),
            "[flags] --policies: got \"\", expected static or static_work or static_arrival or uniform or mixed");
}

TEST(Cli, what_is_not_built_yet_is_refused_by_name) {
  EXPECT_THAT(refusal({"train", "--sequence-parallel", "1"}), HasSubstr("--sequence-parallel: not built yet"));
  EXPECT_THAT(refusal({"train", "--expert-model-parallel-size", "2"}), HasSubstr("not built yet. Hint: only dense"));
  EXPECT_THAT(refusal({"train", "--dtype", "float16"}),
              HasSubstr("which is not built yet, expected float32 or float64 or bfloat16"));
  EXPECT_THAT(refusal({"train", "--objective", "dpo"}), HasSubstr("not built yet, expected sft or ppo or grpo"));
  EXPECT_THAT(refusal({"train", "--advantage-estimator", "gae"}), HasSubstr("not built yet, expected data or grpo"));
  EXPECT_THAT(refusal({"train", "--tensor-model-parallel-size", "2"}),
              HasSubstr("--tensor-model-parallel-size: got 2, expected 1: not built yet for `train`"));
  EXPECT_THAT(refusal({"parity", "--pipeline-model-parallel-size", "2"}), HasSubstr("not built yet for `parity`"));
}

TEST(Cli, combinations_that_mean_nothing) {
  EXPECT_EQ(refusal({"train", "--eval-interval", "5"}),
            "[flags] --eval-interval: got 5 without --eval-data. Hint: add --eval-data FILE");
  EXPECT_EQ(refusal({"train", "--lr-decay-style", "cosine", "--lr", "1e-5", "--min-lr", "1e-4"}),
            "[flags] --min-lr: got 0.0001, expected at most --lr 1e-05");
  for (const std::string flag : {"--save-interval=2", "--save-total-limit=2", "--async-save"}) {
    EXPECT_EQ(refusal({"train", "--no-save", flag}),
              "[flags] " + flag.substr(0, flag.find('=')) + ": got it with --no-save. Hint: leave one of them out");
  }
  EXPECT_THAT(refusal({"plan", "--lengths", "4", "--world-size", "1", "--step", "2"}),
              StartsWith("[flags] --step: got 2 without --global-batch-size"));
}

// Names of flags in a help text: the words that begin with -- at the start of a line.
std::set<std::string> flags_in_help(const std::string& help) {
  std::set<std::string> names;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("--");
    if (line.starts_with("  -") && at != std::string::npos && at < 6) {
      names.insert(line.substr(at, line.find_first_of(" ,\n", at) - at));
    }
  }
  return names;
}

TEST(Docs, every_flag_is_documented_and_every_documented_flag_exists) {
  std::set<std::string> real;
  for (const std::string& command : kCommands) real.merge(flags_in_help(run_binary({command, "--help"}).out));
  std::set<std::string> documented, later;
  std::istringstream page(read_file(RINGFOLD_SOURCE_DIR "/docs/reference/flags.md"));
  bool built = true;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) built = line != "## Not built yet";
    if (!line.starts_with("| `--")) continue;
    (built ? documented : later).insert(line.substr(3, line.find_first_of(" `", 3) - 3));
  }
  EXPECT_EQ(documented, real);
  EXPECT_GE(real.size(), 60u);
  for (const std::string& flag : later) {
    EXPECT_THAT(refusal({"train", flag, "x"}), HasSubstr(flag + ": not built yet"));
  }
}

}  // namespace
}  // namespace ringfold
