// `ringfold plan` from outside: sources of lengths, refusals, exit codes, JSON, recipes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/run_binary.h"

namespace ringfold {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// ctx and b of the dynamic mode, its companions, and the world.
Arguments dynamic(const std::string& context, const std::string& budget, const std::string& world) {
  return {"--dynamic-context-parallel",
          "--use-dynamic-batch-size",
          "--calculate-per-token-loss",
          "--rollout-max-context-len",
          context,
          "--max-tokens-per-gpu",
          budget,
          "--world-size",
          world};
}

json plan_json(const Arguments& arguments) {
  const Outcome outcome = run_binary(Arguments{"plan", "--json"} + arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? json::parse(outcome.out) : json();
}

std::vector<int64_t> samples_of(const json& plan) {
  std::vector<int64_t> ids;
  for (const json& step : plan["micro_steps"]) {
    for (const json& group : step["groups"]) {
      for (const json& id : group["samples"]) ids.push_back(id.get<int64_t>());
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

TEST(Plan, case_P5_a_long_sample_gets_its_own_cp_size_and_a_longer_one_is_refused) {
  const json plan = plan_json(Arguments{"--lengths", "400,7900,300"} + dynamic("8192", "4096", "2"));
  ASSERT_EQ(plan["schema"], 1);
  EXPECT_EQ(plan["max_cp"], 2);
  bool alone = false;
  for (const json& step : plan["micro_steps"]) {
    for (const json& group : step["groups"]) {
      if (group["samples"] == json({1})) {
        alone = group["cp_size"] == 2 && group["padded_tokens"] == json({3950, 3950});
      }
    }
  }
  EXPECT_TRUE(alone) << plan;

  EXPECT_THAT(refusal(Arguments{"plan", "--lengths", "400,8193,300"} + dynamic("8192", "4096", "2")),
              StartsWith("[data] --lengths (sample 1): too long: got 8193 tokens, expected at most 8192 "
                         "(--rollout-max-context-len)"));
}

TEST(Plan, case_P6_worlds_that_do_not_divide_are_refused) {
  EXPECT_THAT(refusal(Arguments{"plan", "--lengths", "4"} + dynamic("4096", "1024", "6")),
              AllOf(StartsWith("world_size must be a multiple of tp*pp*cp: got world_size=6, tp=1, pp=1, cp=4"),
                    HasSubstr("Hint: "), HasSubstr("--max-tokens-per-gpu")));
  const json plan = plan_json(Arguments{"--lengths", "4000,900"} + dynamic("4096", "1024", "12"));
  EXPECT_EQ(plan["dp"], 3);
  EXPECT_EQ(plan["max_cp"], 4);
}

TEST(Plan, case_M1_the_budget_is_per_GPU_after_the_split) {
  const Outcome outcome = run_binary(Arguments{"plan", "--lengths", "1800,200"} + dynamic("2048", "1024", "2"));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("1,000 tokens per GPU"), HasSubstr("c=2"), Not(HasSubstr("micro-step 1 "))));
}

TEST(Plan, dynamic_cp_needs_its_companions) {
  const Arguments all = dynamic("4096", "1024", "4");
  const std::pair<std::string, size_t> companions[] = {{"--use-dynamic-batch-size", 1},
                                                       {"--calculate-per-token-loss", 1},
                                                       {"--rollout-max-context-len", 2},
                                                       {"--max-tokens-per-gpu", 2}};
  for (const auto& [flag, words] : companions) {
    Arguments without = all;
    const auto at = std::find(without.begin(), without.end(), flag);
    without.erase(at, at + static_cast<std::ptrdiff_t>(words));
    EXPECT_THAT(refusal(Arguments{"plan", "--lengths", "4"} + without),
                StartsWith("--dynamic-context-parallel requires " + flag));
  }
}

TEST(Plan, every_scheme_is_predicted) {
  std::set<double> times;
  for (const char* scheme : {"p2p", "all_gather", "a2a"}) {
    const json plan =
        plan_json(Arguments{"--lengths", "4000", "--cp-comm-type", scheme} + dynamic("4096", "1024", "4"));
    EXPECT_EQ(plan["max_cp"], 4);
    times.insert(plan["summary"]["makespan"].get<double>());
  }
  EXPECT_EQ(times.size(), 3u);
}

TEST(Plan, other_refusals_of_the_layout) {
  EXPECT_THAT(refusal(Arguments{"plan", "--lengths", "4", "--log-probs-max-tokens-per-gpu", "512"} +
                      dynamic("4096", "1024", "4")),
              HasSubstr("--log-probs-max-tokens-per-gpu"));
  const json plan = plan_json(
      Arguments{"--lengths", "4", "--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"} +
      dynamic("4096", "1024", "16"));
  EXPECT_EQ(plan["tp"], 2);
  EXPECT_EQ(plan["pp"], 2);
  EXPECT_EQ(plan["dp"], 1);
}

TEST(Plan, a_budget_that_holds_everything_is_worth_a_warning) {
  const Outcome outcome = run_binary(Arguments{"plan", "--lengths", "4"} + dynamic("1024", "1024", "1"));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("ringfold: warning: dynamic CP degenerates to c = 1"));
}

TEST(Plan, a_sample_that_fits_no_pack_leaves_no_plan) {
  EXPECT_THAT(refusal({"plan", "--lengths", "10,5000", "--world-size", "2", "--context-parallel-size", "2",
                       "--use-dynamic-batch-size", "--max-tokens-per-gpu", "1024"},
                      3),
              AllOf(HasSubstr("sample 1"), HasSubstr("5000"), HasSubstr("2048")));
}

TEST(Plan, lengths_come_from_one_source) {
  const std::string list = write_temp("lengths.txt", "900\n100 # second\n");
  const std::string data = write_temp("data.jsonl", "{\"tokens\":[1,2,3]}\n\n{\"tokens\":[4]}\n");
  EXPECT_EQ(plan_json({"--lengths-file", list, "--world-size", "1"})["summary"]["tokens"], 1000);
  EXPECT_EQ(plan_json({list, "--world-size", "1"})["summary"]["tokens"], 1000);
  EXPECT_EQ(plan_json({"--data", data, "--world-size", "1"})["summary"]["tokens"], 4);
  EXPECT_EQ(plan_json({data, "--world-size", "1"})["summary"]["tokens"], 4);
  EXPECT_EQ(refusal({"plan", "--world-size", "1"}),
            "[flags] --lengths, --lengths-file, --data: got 0 of them, expected exactly one");
  EXPECT_EQ(refusal({"plan", "--world-size", "1", "--lengths", "4", "--data", data}),
            "[flags] --lengths, --lengths-file, --data: got 2 of them, expected exactly one");
  EXPECT_EQ(refusal({"plan", data, "--data", data}),
            "[flags] got the file " + data + " and also " + data + ", expected one");
  EXPECT_EQ(refusal({"plan", data, "extra"}), "[flags] got \"extra\", expected a flag. Hint: see ringfold plan --help");
  EXPECT_THAT(refusal({"plan", "--lengths", "4,0", "--world-size", "1"}),
              HasSubstr("--lengths (sample 1): length: got \"0\", expected an integer >= 1"));
  EXPECT_THAT(refusal({"plan", "--lengths-file", "/nowhere.txt", "--world-size", "1"}),
              StartsWith("[data] /nowhere.txt: cannot open: No such file or directory"));
  EXPECT_THAT(refusal({"plan", "--lengths", "4"}), StartsWith("[flags] --world-size: not given"));
}

TEST(Plan, bad_samples_are_skipped_and_counted_on_request) {
  const std::string data =
      write_temp("skip.jsonl", "{\"tokens\":[1,2,3]}\n{\"tokens\":[1,2,3,4,5]}\n{\"tokens\":\n{\"tokens\":[4]}\n");
  const Arguments flags = {"--world-size", "1", "--rollout-max-context-len", "4", "--skip-bad-samples"};
  const Outcome from_data = run_binary(Arguments{"plan", "--json", "--data", data} + flags);
  EXPECT_EQ(from_data.code, 0);
  EXPECT_THAT(from_data.err, HasSubstr("ringfold: warning: 2 skipped of 4 samples (1 broken JSON, 1 too long)"));
  EXPECT_EQ(samples_of(json::parse(from_data.out)), (std::vector<int64_t>{0, 3}));

  const Outcome from_lengths = run_binary(Arguments{"plan", "--json", "--lengths", "4,5,3"} + flags);
  EXPECT_EQ(from_lengths.code, 0);
  EXPECT_THAT(from_lengths.err, HasSubstr("1 skipped of 3 samples. First: --lengths (sample 1): too long: got 5"));
  EXPECT_EQ(samples_of(json::parse(from_lengths.out)), (std::vector<int64_t>{0, 2}));
  EXPECT_THAT(refusal(Arguments{"plan", "--lengths", "5"} + flags), StartsWith("[data] no sample left: 1 skipped"));
}

TEST(Plan, text_is_read_with_the_tokenizer_that_is_given) {
  const std::string file = write_temp("text.jsonl", R"({"prompt": "12", "response": "345<|im_end|>"})"
                                                    "\n");
  const Arguments arguments = {"plan", "--json", "--data", file, "--world-size", "1"};
  const std::string tokenizers = RINGFOLD_SOURCE_DIR "/tests/data/tokenizers/";
  const Outcome outcome = run_binary(arguments + Arguments{"--tokenizer", tokenizers + "qwen"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["summary"]["tokens"], 6);
  EXPECT_THAT(refusal(arguments),
              StartsWith("[data] " + file +
                         ":1 (sample 0): text without a tokenizer: got the key \"prompt\", expected token "
                         "ids. Hint: give --tokenizer DIR"));
  EXPECT_THAT(refusal(arguments + Arguments{"--tokenizer", tokenizers}),
              StartsWith("[tokenizer] " + tokenizers + ": no tokenizer in it, expected tokenizer.json, or vocab.json"));
}

TEST(Plan, steps_follow_the_global_batch_size) {
  const Arguments flags = {"--lengths", "1,2,3,4,5", "--world-size", "1", "--global-batch-size", "2"};
  EXPECT_EQ(samples_of(plan_json(flags)), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(samples_of(plan_json(flags + Arguments{"--step", "3"})), (std::vector<int64_t>{4}));
  EXPECT_EQ(samples_of(plan_json(flags + Arguments{"--step", "4"})), (std::vector<int64_t>{0, 1}));
  const json shuffled = plan_json(flags + Arguments{"--shuffle", "--seed", "3", "--step", "3"});
  EXPECT_EQ(samples_of(shuffled).size(), 1u);
}

TEST(Plan, the_same_input_gives_the_same_bytes_and_timing_is_extra) {
  const Arguments flags = Arguments{"plan", "--json", "--lengths", "900,100,4000,30"} + dynamic("4096", "1024", "4");
  const std::string first = run_binary(flags).out;
  EXPECT_EQ(first, run_binary(flags).out);
  json timed = json::parse(run_binary(flags + Arguments{"--timing"}).out);
  EXPECT_GE(timed["plan_ms"].get<double>(), 0);
  timed.erase("plan_ms");
  EXPECT_EQ(timed, json::parse(first));
}

TEST(Plan, ranks_of_a_launcher_speak_once) {
  const auto as_rank = [](const std::string& rank, const Arguments& arguments) {
    return run_binary(arguments, {{"RANK", rank},
                                  {"WORLD_SIZE", "4"},
                                  {"LOCAL_RANK", rank},
                                  {"LOCAL_WORLD_SIZE", "4"},
                                  {"MASTER_ADDR", "127.0.0.1"},
                                  {"MASTER_PORT", "29511"}});
  };
  const Arguments plan = {"plan", "--json", "--lengths", "4"};
  EXPECT_EQ(json::parse(as_rank("0", plan).out)["world_size"], 4) << "the launcher's world";
  EXPECT_EQ(as_rank("1", plan).code, 0);
  EXPECT_EQ(as_rank("1", plan).out, "");
  const Outcome first = as_rank("0", {"plan", "--lr", "1"}), second = as_rank("1", {"plan", "--lr", "1"});
  EXPECT_EQ(first.code, 2);
  EXPECT_THAT(first.err, HasSubstr("belongs to train"));
  EXPECT_EQ(second.code, 2);
  EXPECT_EQ(second.err, "");
  EXPECT_EQ(as_rank("1", {"plam"}).err, "");
  EXPECT_EQ(as_rank("1", {"plan", "--help"}).out, "");
}

TEST(Plan, a_full_disk_is_an_error) {
  const int code =
      std::system((std::string(RINGFOLD_BINARY) + " plan --lengths 4 --world-size 1 >/dev/full 2>/dev/null").c_str());
  EXPECT_EQ(WEXITSTATUS(code), 4);
}

TEST(Recipe, keys_are_flags_and_flags_win) {
  const std::string recipe = write_temp("recipe.toml", R"(
lengths = [900, 100]
[parallel]
dynamic-context-parallel = true
use_dynamic_batch_size = true
calculate_per_token_loss = true
rollout_max_context_len = 4_096
max-tokens-per-gpu = 1024
world-size = 4
[train]      # what only training uses may stand in the same recipe
lr = 1e-4
output-dir = "run"
)");
  const json plan = plan_json({"--config", recipe});
  EXPECT_EQ(plan["max_cp"], 4);
  EXPECT_EQ(plan["summary"]["tokens"], 1000);
  const json overridden = plan_json({"--max-tokens-per-gpu", "2048", "--config", recipe, "--lengths", "7"});
  EXPECT_EQ(overridden["max_cp"], 2);
  EXPECT_EQ(overridden["summary"]["tokens"], 7);
  const std::string list = write_temp("flags_win.txt", "11");
  EXPECT_EQ(plan_json({"--config", recipe, "--lengths-file", list})["summary"]["tokens"], 11);
  EXPECT_EQ(plan_json({"--config", recipe, list})["summary"]["tokens"], 11);
  EXPECT_THAT(run_binary({"plan", "--config", recipe}).err,
              HasSubstr("keys of the recipe without a meaning for plan: lr, output-dir"));
}

TEST(Recipe, all_recipes_of_the_repository_are_valid) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(RINGFOLD_SOURCE_DIR "/recipes")) {
    const Outcome outcome =
        run_binary({"plan", "--config", entry.path(), "--lengths", "900,100,30", "--world-size", "8"});
    EXPECT_EQ(outcome.code, 0) << entry.path() << ": " << outcome.err;
    ++count;
  }
  EXPECT_GE(count, 3);
}

TEST(Recipe, switches_can_be_turned_off) {
  const std::string recipe =
      write_temp("off.toml", "lengths = \"4,5\"\nworld-size = 1\ndynamic-context-parallel = false\n");
  EXPECT_EQ(plan_json({"--config", recipe})["summary"]["tokens"], 9);
}

TEST(Recipe, errors_name_file_line_and_key) {
  const auto refused = [](const std::string& text) {
    const std::string file = write_temp("bad.toml", text);
    const std::string message = refusal({"plan", "--config", file});
    EXPECT_THAT(message, StartsWith("[recipe] " + file + ":"));
    return message.substr(std::min(message.size(), ("[recipe] " + file).size()));
  };
  EXPECT_EQ(refused("\n[a]\nmax_token_per_gpu = 3\n"),
            ":3: max_token_per_gpu: unknown key. Hint: did you mean max-tokens-per-gpu?");
  EXPECT_THAT(refused("qqqqqqqqqqqqqqqqqqqqqqqqqqqqqq = 3\n"),
              HasSubstr("unknown key. Hint: keys are the names of flags"));
  EXPECT_EQ(refused("world-size = \"4\"\n"), ":1: world-size: got a string, expected an integer");
  EXPECT_EQ(refused("world-size = 4.0\n"), ":1: world-size: got a number, expected an integer");
  EXPECT_EQ(refused("lr = true\n"), ":1: lr: got true or false, expected a number");
  EXPECT_EQ(refused("json = 1\n"), ":1: json: got an integer, expected true or false");
  EXPECT_EQ(refused("data = 3\n"), ":1: data: got an integer, expected a string");
  EXPECT_EQ(refused("lengths = [1, [2]]\n"), ":1: lengths: got an array in the array, expected a value");
  EXPECT_EQ(refused("seed = 2020-01-01\n"), ":1: seed: got a date or time, expected an integer");
  EXPECT_EQ(refused("world-size = 0\n"), ":1: world-size: got \"0\", expected an integer from 1 to 1048576");
  EXPECT_EQ(refused("lr = inf\n"), ":1: lr: got \"inf\", expected a number >= 0");
  EXPECT_EQ(refused("seed = 1\n[a]\nseed = 2\n"), ":3: seed: given twice, first on line 1");
  EXPECT_EQ(refused("max-steps = 1\nmax_steps = 2\n"), ":2: max_steps: given twice, first on line 1");
  EXPECT_EQ(refused("expert-model-parallel-size = \"2\"\n"),
            ":1: expert-model-parallel-size: not built yet. Hint: only dense models are built");
  EXPECT_THAT(refused("a = \n"), StartsWith(":1: broken TOML: "));
  EXPECT_THAT(refusal({"plan", "--config", "/nowhere.toml"}),
              StartsWith("[recipe] /nowhere.toml: cannot read: No such file or directory"));
  EXPECT_THAT(refusal({"plan", "--config", ::testing::TempDir()}), HasSubstr("cannot read: Is a directory"));
}

}  // namespace
}  // namespace ringfold
