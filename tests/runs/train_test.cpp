// The parallel subcommands end to end: the real binary, real processes, files in and out.
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ringfold/report/timeline.h"
#include "runs/run_folder.h"

namespace ringfold {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class Train : public RunFolder {
 protected:
  Train() { write("config.json", kTinyConfig); }

  // Samples of these lengths; the last three tokens are the response. `extra` goes into every record.
  void write_samples(const std::string& name, const std::vector<int>& lengths, const json& extra = json::object()) {
    std::string text;
    for (size_t i = 0; i < lengths.size(); ++i) {
      json record = extra;
      for (int t = 0; t < lengths[i]; ++t) record["tokens"].push_back((t * 7 + static_cast<int>(i) * 13 + 3) % 64);
      record["response_length"] = std::min(3, lengths[i] - 1);
      if (extra.contains("reward")) record["reward"] = static_cast<int>(i % 2);
      text += record.dump() + "\n";
    }
    write(name, text);
  }

  // Dynamic CP with S = 2 on two ranks: samples above 16 tokens run at c = 2.
  Outcome launch(std::vector<std::string> command, int ranks = 2) const {
    std::vector<std::string> all = {"launch", "-n", std::to_string(ranks), "--", command[0]};
    const std::vector<std::string> layout = {"--model-config",
                                             at("config.json"),
                                             "--init-seed",
                                             "3",
                                             "--dynamic-context-parallel",
                                             "--use-dynamic-batch-size",
                                             "--calculate-per-token-loss",
                                             "--rollout-max-context-len",
                                             "32",
                                             "--max-tokens-per-gpu",
                                             "16",
                                             "--comm-timeout-seconds",
                                             "30"};
    all.insert(all.end(), layout.begin(), layout.end());
    all.insert(all.end(), command.begin() + 1, command.end());
    return run_binary(all);
  }

  // The one line that says what is wrong, and no step made.
  void expect_refused(const Outcome& outcome, int code, const std::string& message) const {
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_EQ(outcome.err.find("ringfold: error:"), outcome.err.rfind("ringfold: error:")) << outcome.err;
    EXPECT_TRUE(records("out/metrics.jsonl").empty());
  }
};

const std::vector<int> kLengths = {30, 5, 7, 3, 1, 9, 20, 4};

TEST_F(Train, sft_writes_metrics_weights_plans_and_unclipped_gradients) {
  write_samples("data.jsonl", kLengths);
  const Outcome outcome =
      launch({"train", "--data", at("data.jsonl"), "--output-dir", at("out"), "--global-batch-size", "5", "--epochs",
              "2", "--lr", "1e-3", "--clip-grad", "0.001", "--dump-plans", "--dump-gradients", at("g.safetensors")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("[dynamic_cp] micro-step dynamic_cp_size="));
  EXPECT_THAT(outcome.err, HasSubstr("max_token_per_gpu=16"));
  const auto steps = records("out/metrics.jsonl");
  ASSERT_EQ(steps.size(), 4u);  // two epochs of a batch of 5 and a short one of 3
  EXPECT_EQ(steps[3]["epoch"], 2.0);
  EXPECT_EQ(steps[1]["samples"].size(), 3u);
  EXPECT_EQ(steps[0]["tokens"].get<int>() + steps[1]["tokens"].get<int>(), 79);
  EXPECT_EQ(steps[0]["loss_tokens"].get<int>() + steps[1]["loss_tokens"].get<int>(), 20);
  for (const json& step : steps) {
    for (const json& share : step["idle_share"]) EXPECT_TRUE(share >= 0.0 && share <= 1.0) << share;
    EXPECT_LE(step["exposed_comm_ms"], step["step_ms"]);
  }
  const auto timelines = records("out/timeline.jsonl");
  ASSERT_EQ(timelines.size(), 4u);
  for (size_t i = 0; i < timelines.size(); ++i) {
    EXPECT_EQ(timelines[i]["step"], i + 1);
    EXPECT_NEAR(timelines[i]["step_us"], 1e3 * steps[i]["step_ms"].get<double>(), 0.1);
    ASSERT_EQ(timelines[i]["measured_us"].size(), 2u);
    for (const json& rank : timelines[i]["measured_us"]) {
      if (!rank.empty()) {
        EXPECT_LT(rank.back(), timelines[i]["step_us"]);
      }
    }
  }
  const Outcome report = run_binary({"report", at("out"), "--trace", at("trace.json")});
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(read_file(at("trace.json")), HasSubstr("measured"));
  EXPECT_TRUE(std::filesystem::exists(at("out/hf/model.safetensors")));
  EXPECT_TRUE(std::filesystem::exists(at("out/hf/config.json")));
  const json plan = json::parse(read_file(at("out/plan_step_1.json")));
  EXPECT_EQ(plan["max_cp"], 2);
  EXPECT_FALSE(plan.contains("plan_ms"));
  // The norm of the dumped gradients is the reported one, although the step was clipped to a thousandth.
  const std::string bytes = read_file(at("g.safetensors"));
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  double squares = 0;
  for (size_t i = 8 + header; i + 4 <= bytes.size(); i += 4) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i, 4);
    squares += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(std::sqrt(squares), steps[0]["grad_norm"].get<double>(), 1e-5 * std::sqrt(squares));

  // A second run into the same folder would mix records.
  const Outcome again = launch({"train", "--data", at("data.jsonl"), "--output-dir", at("out")});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("holds a run already"));
}

TEST_F(Train, all_to_all_splits_the_heads_or_refuses_before_it_reads_data) {
  write_samples("data.jsonl", kLengths);
  const Outcome parity =
      launch({"parity", "--cp-comm-type", "a2a", "--dtype", "float64", "--data", at("data.jsonl"), "--json"});
  ASSERT_EQ(parity.code, 0) << parity.out << parity.err;
  EXPECT_EQ(json::parse(parity.out)["ok"], true);
  const std::string config = kTinyConfig, four = "\"num_attention_heads\":4,\"num_key_value_heads\":2";
  const auto with_heads = [&](const std::string& heads) {
    write("config.json", std::string(config).replace(config.find(four), four.size(), heads));
  };
  with_heads("\"num_attention_heads\":3,\"num_key_value_heads\":3");
  expect_refused(
      launch({"train", "--cp-comm-type", "a2a", "--data", at("nowhere.jsonl"), "--output-dir", at("out")}), 2,
      "--cp-comm-type a2a splits the model's heads among the ranks of a group: got num_attention_heads=3 and "
      "num_key_value_heads=3 with cp=2 (derived");
  // On four ranks with S = 2: mixed does without groups of 4, and the table says so.
  with_heads("\"num_attention_heads\":6,\"num_key_value_heads\":2");
  const Outcome mixed = launch(
      {"train", "--cp-comm-type", "a2a", "--cp-policy", "mixed", "--data", at("data.jsonl"), "--output-dir", at("out")},
      4);
  EXPECT_EQ(mixed.code, 0) << mixed.err;
  EXPECT_THAT(mixed.out + mixed.err, HasSubstr("CP sizes up to 2 instead of 4: --cp-comm-type a2a"));
}

TEST_F(Train, grpo_starts_at_ratio_one_and_parity_and_logprob_agree_with_it) {
  write_samples("data.jsonl", kLengths, {{"reward", 0}, {"group", "a"}});
  const Outcome outcome = launch({"train", "--objective", "grpo", "--data", at("data.jsonl"), "--output-dir", at("out"),
                                  "--max-steps", "2", "--lr", "0", "--log-probs-max-tokens-per-gpu", "32"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const json& step : records("out/metrics.jsonl")) {
    EXPECT_LE(step["ratio_max_dev"], 1e-5);
    EXPECT_EQ(step["clip_fraction"], 0.0);
    EXPECT_EQ(step["reward_mean"], 0.5);
    for (const json& share : step["idle_share"]) EXPECT_TRUE(share >= 0.0 && share <= 1.0) << share;
  }
  const Outcome scored = launch({"logprob", "--data", at("data.jsonl"), "--output", at("scores.jsonl")});
  ASSERT_EQ(scored.code, 0) << scored.err;
  const auto scores = records("scores.jsonl");
  ASSERT_EQ(scores.size(), kLengths.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_EQ(scores[i]["index"], i);
    EXPECT_EQ(scores[i]["log_probs"].size(), static_cast<size_t>(std::min(3, kLengths[i] - 1)));
  }
  const Outcome parity =
      launch({"parity", "--objective", "grpo", "--dtype", "float64", "--data", at("data.jsonl"), "--json"});
  ASSERT_EQ(parity.code, 0) << parity.out << parity.err;
  EXPECT_EQ(json::parse(parity.out)["ok"], true);
}

TEST_F(Train, bench_times_every_policy_on_the_same_samples) {
  write("lengths.txt", "30, 5, 7\n3 1 9 20 4\n");
  const Outcome outcome =
      launch({"bench", "--lengths-file", at("lengths.txt"), "--steps", "2", "--json", "--timeline", at("steps.jsonl")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  ASSERT_EQ(result["policies"].size(), 4u);
  for (const json& row : result["policies"]) {
    EXPECT_GT(row["median_ms"], 0.0);
    EXPECT_NEAR(row["loss"], result["policies"][0]["loss"].get<double>(), 1e-5);
    EXPECT_GT(row["limit_ms"], 0.0);
    EXPECT_NEAR(row["share_of_limit"].get<double>(), row["limit_ms"].get<double>() / row["median_ms"].get<double>(),
                1e-9);
  }
  const std::string timelines = read_file(at("steps.jsonl"));
  EXPECT_EQ(std::count(timelines.begin(), timelines.end(), '\n'), 4);
  std::istringstream lines(timelines);
  for (std::string line; std::getline(lines, line);) {
    const StepTimeline step = parse_timeline(line, "steps.jsonl");
    EXPECT_GT(packs_end_us(step), 0.0);
    EXPECT_LE(packs_end_us(step), step.step_us);
  }
  expect_refused(launch({"bench", "--lengths-file", at("lengths.txt"), "--timeline", at("none/steps.jsonl")}), 2,
                 "[settings] --timeline");
  EXPECT_EQ(launch({"bench", "--objective", "grpo", "--lengths-file", at("lengths.txt")}).code, 2);
}

TEST_F(Train, bench_calibrates_a_cost_model_that_runs_plan_by) {
  const std::vector<std::string> calibrate = {
      "bench", "--calibrate",          at("cost.toml"), "--rollout-max-context-len",
      "1024",  "--max-tokens-per-gpu", "512",           "--steps",
      "3"};
  auto as_json = calibrate;
  as_json.push_back("--json");
  const Outcome outcome = launch(as_json);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["packs"].size(), 11u);  // at CP 1: three lengths and two full packs; at CP 2: three and three
  for (const json& pack : result["packs"]) EXPECT_GT(pack["measured_us"], 0.0);
  EXPECT_THAT(read_file(at("cost.toml")), HasSubstr("# ringfold bench --calibrate on 2 rank(s) of cpu (p2p, 2 layers"));

  const Outcome table = launch(calibrate);
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("measured ms"));
  EXPECT_THAT(table.out, HasSubstr("2 x 512"));
  EXPECT_THAT(table.out, HasSubstr("11 packs: median error "));
  EXPECT_THAT(table.out, HasSubstr("plans go by it with --cost-model " + at("cost.toml")));

  write("lengths.txt", "30, 5, 7");
  const Outcome bench = launch({"bench", "--lengths-file", at("lengths.txt"), "--steps", "1", "--policies", "mixed",
                                "--json", "--cost-model", at("cost.toml")});
  ASSERT_EQ(bench.code, 0) << bench.err;
  EXPECT_GT(json::parse(bench.out)["policies"][0]["predicted_ms"], 0.0);

  auto both = calibrate;
  both.insert(both.end(), {"--lengths-file", at("lengths.txt")});
  expect_refused(launch(both), 2,
                 "[bench] --calibrate and --lengths-file: got both, expected one. Hint: calibrate "
                 "first, then bench with --cost-model " +
                     at("cost.toml"));
  expect_refused(launch({"bench", "--calibrate", at("cost.toml")}), 2, "which leaves 2 pack(s) to time");
  expect_refused(launch({"bench", "--calibrate", at("none/cost.toml")}), 2, "[settings] --calibrate");
  expect_refused(launch({"bench", "--lengths-file", at("lengths.txt"), "--cost-model", at("none.toml")}), 2,
                 "[cost_model] " + at("none.toml") + ": cannot read");
}

TEST_F(Train, says_when_dynamic_cp_made_no_difference_and_when_there_was_nothing_to_learn) {
  write("data.jsonl", "{\"tokens\":[1,2,3],\"response_length\":0}\n{\"tokens\":[4]}\n");
  const Outcome outcome = launch({"train", "--data", at("data.jsonl"), "--output-dir", at("out"), "--lr", "0.1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("step 1: no loss tokens in the batch; loss 0, weights unchanged"));
  EXPECT_THAT(outcome.err, HasSubstr("every micro-batch ran at CP size 1: dynamic CP made no difference"));
  EXPECT_EQ(records("out/metrics.jsonl").at(0)["loss"], 0.0);
}

TEST_F(Train, bad_data_ends_every_rank_before_step_one) {
  const auto train = [&](const std::string& line, std::vector<std::string> more = {}) {
    write("data.jsonl", "{\"tokens\":[1,2,3]}\n{\"tokens\":[1,2,3]}\n{\"tokens\":[1,2,3]}\n" + line + "\n");
    more.insert(more.begin(), {"train", "--data", at("data.jsonl"), "--output-dir", at("out")});
    return launch(more);
  };
  const Outcome id = train("{\"tokens\":[1,64,3]}");  // D1
  expect_refused(id, 2, "data.jsonl:4 (sample 3)");
  EXPECT_THAT(id.err, HasSubstr("64"));
  expect_refused(train("{\"tokens\":[1,-1,3]}"), 2, "-1");
  expect_refused(train("{\"tokens\":[1,2"), 2, "data.jsonl:4");  // D2
  const Outcome mask =
      train("{\"tokens\":[1,2,3,4,5,6,7,8,9,10,11],\"response_length\":10,\"loss_mask\":[1,1,1,1,1,1,1,1,1]}");
  expect_refused(mask, 2, "(sample 3)");  // D3
  EXPECT_THAT(mask.err, HasSubstr("10"));
  EXPECT_THAT(mask.err, HasSubstr("9"));
  std::string ones = "1";
  for (int i = 0; i < 32; ++i) ones += ",1";
  expect_refused(train("{\"tokens\":[" + ones + "]}"), 2, "33");  // longer than the context of 32
  const Outcome skipped = train("{\"tokens\":[1,2", {"--skip-bad-samples"});
  EXPECT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_THAT(skipped.err, HasSubstr("1 skipped"));
}

TEST_F(Train, settings_that_differ_between_ranks_are_named) {
  write_samples("data.jsonl", kLengths);
  write_samples("other.jsonl", {30, 5, 7});
  const std::string common = " train --model-config " + at("config.json") + " --context-parallel-size 2 --output-dir " +
                             at("out") + " --comm-timeout-seconds 20 ";
  // Plain environment contract: the ranks get different flags, as a broken launcher script would give them.
  const auto run_two = [&](const std::string& first, const std::string& second) {
    const std::string binary = RINGFOLD_BINARY;
    const std::string port = std::to_string(20000 + getpid() % 20000);
    const std::string script = "export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port +
                               "; (RANK=0 LOCAL_RANK=0 " + binary + common + first + " 2> " + at("e0") +
                               "; echo $? > " + at("c0") + ") & RANK=1 LOCAL_RANK=1 " + binary + common + second +
                               " 2> " + at("e1") + "; echo $? > " + at("c1") + "; wait";
    EXPECT_EQ(std::system(("bash -c '" + script + "'").c_str()), 0);
    return read_file(at("e0")) + read_file(at("e1"));
  };
  const std::string data = run_two("--data " + at("data.jsonl"), "--data " + at("other.jsonl"));
  EXPECT_THAT(data, HasSubstr("data digest"));
  EXPECT_EQ(read_file(at("c0")) + read_file(at("c1")), "2\n2\n") << data;
  // Only rank 1 has a broken file: it is named, once, and both end.
  write("torn.jsonl", "{\"tokens\":[1,2");
  const std::string torn = run_two("--data " + at("data.jsonl"), "--data " + at("torn.jsonl"));
  EXPECT_THAT(torn, HasSubstr("ringfold: error: (rank 1) [data] "));
  EXPECT_THAT(torn, HasSubstr("torn.jsonl:1"));
  EXPECT_EQ(torn.find("ringfold: error:"), torn.rfind("ringfold: error:")) << torn;
  EXPECT_EQ(read_file(at("c0")) + read_file(at("c1")), "2\n2\n") << torn;
  const std::string beta = run_two("--data " + at("data.jsonl"), "--adam-beta1 0.5 --data " + at("data.jsonl"));
  EXPECT_THAT(beta, HasSubstr("--adam-beta1"));
  const std::string costs = run_two("--cost-model qwen3-4b --data " + at("data.jsonl"), "--data " + at("data.jsonl"));
  EXPECT_THAT(costs, HasSubstr("--cost-model"));
  const std::string weights = run_two("--data " + at("data.jsonl"), "--init-seed 9 --data " + at("data.jsonl"));
  EXPECT_THAT(weights, HasSubstr("weights"));
}

TEST_F(Train, a_diverged_run_stops_and_keeps_no_broken_weights) {
  write_samples("data.jsonl", kLengths);
  const Outcome outcome = launch({"train", "--data", at("data.jsonl"), "--output-dir", at("out"), "--lr", "1e30",
                                  "--clip-grad", "0", "--max-steps", "3"});
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("are not finite; no update was made"));
  EXPECT_FALSE(std::filesystem::exists(at("out/hf/model.safetensors")));
}

TEST_F(Train, kill_9_of_a_rank_during_a_step_ends_the_job_with_one_message) {
  write_samples("data.jsonl", kLengths);
  const std::string log = at("log"),
                    command = std::string(RINGFOLD_BINARY) + " launch -n 2 -- train --model-config " +
                              at("config.json") + " --data " + at("data.jsonl") +
                              " --context-parallel-size 2 --max-steps 1000000 --no-progress --output-dir " + at("out");
  const auto begin = std::chrono::steady_clock::now();
  // Waits until steps are being made, then kills the rank whose RANK is 1.
  const std::string script =
      command + " > " + log + " 2>&1 & pid=$!; for i in $(seq 300); do [ -s " + at("out/metrics.jsonl") +
      " ] && break; sleep 0.1; done; for c in $(pgrep -P $pid); do tr \"\\0\" \"\\n\" < /proc/$c/environ "
      "| grep -qx RANK=1 && kill -9 $c; done; wait $pid; echo $? > " +
      at("code");
  ASSERT_EQ(std::system(("bash -c '" + script + "'").c_str()), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
  EXPECT_EQ(read_file(at("code")), "137\n");
  const std::string text = read_file(log);
  EXPECT_THAT(text, HasSubstr("rank 1"));
  EXPECT_EQ(text.find("ringfold: error:"), text.rfind("ringfold: error:")) << text;
}

}  // namespace
}  // namespace ringfold
