// The cost model as TOML: what is written reads back, and whatever is wrong is told with its line, key and remedy.
#include "ringfold/report/cost_model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

CostModel odd_model() {
  CostModel model = CostModel::megatron_small_h200();
  model.fixed_us = 1.0 / 3;
  model.us_per_vision_token = 0.1;
  model.cross_node_hop_latency_us = 61;
  model.node_size = 4;
  return model;
}

void expect_equal(const CostModel& a, const CostModel& b) {
  EXPECT_EQ(a.fixed_us, b.fixed_us);
  EXPECT_EQ(a.us_per_token, b.us_per_token);
  EXPECT_EQ(a.us_per_vision_token, b.us_per_vision_token);
  EXPECT_EQ(a.attention_flops_per_token2, b.attention_flops_per_token2);
  EXPECT_EQ(a.rate_length_tokens, b.rate_length_tokens);
  EXPECT_EQ(a.rate_flops_per_us, b.rate_flops_per_us);
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.node_size, b.node_size);
  EXPECT_EQ(a.kv_bytes_per_token_layer, b.kv_bytes_per_token_layer);
  EXPECT_EQ(a.query_bytes_per_token_layer, b.query_bytes_per_token_layer);
  EXPECT_EQ(a.kv_heads, b.kv_heads);
  EXPECT_EQ(a.hop_latency_us, b.hop_latency_us);
  EXPECT_EQ(a.node_bytes_per_us, b.node_bytes_per_us);
  EXPECT_EQ(a.cross_node_hop_latency_us, b.cross_node_hop_latency_us);
  EXPECT_EQ(a.cross_node_bytes_per_us, b.cross_node_bytes_per_us);
}

std::string temp_file() {
  return ::testing::TempDir() + "ringfold_cost_" + std::to_string(getpid()) + ".toml";
}

std::string replaced(std::string text, const std::string& old, const std::string& with) {
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), with);
}

std::string complaint(const std::string& text) {
  try {
    parse_cost_model(text, "cost.toml");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(CostModelFile, reads_back_to_the_last_bit) {
  expect_equal(parse_cost_model(cost_model_to_toml(odd_model(), "a test"), "cost.toml"), odd_model());
  expect_equal(parse_cost_model(cost_model_to_toml(CostModel::qwen3_4b_h200(), "x"), "c"), CostModel::qwen3_4b_h200());
}

TEST(CostModelFile, what_only_all_to_all_needs_may_be_left_out) {
  const CostModel whole = CostModel::qwen3_4b_h200();
  std::string text = replaced(cost_model_to_toml(whole, "x"), "kv_heads = 8\n", "");
  CostModel read = parse_cost_model(replaced(text, "query_bytes_per_token_layer = 8192.0\n", ""), "c");
  EXPECT_EQ(read.kv_heads, 0);
  read.kv_heads = whole.kv_heads;
  expect_equal(read, whole);
  CostModel odd = odd_model();
  odd.query_bytes_per_token_layer = 0;
  expect_equal(parse_cost_model(cost_model_to_toml(odd, "x"), "c"), odd);
}

TEST(CostModelFile, a_calibration_says_what_it_is_worth) {
  Calibration calibration{odd_model(), 40, 2, 0.012, 0.055, {"cross_node_bytes_per_us"}};
  const std::string file = temp_file();
  save_calibration(calibration, "two ranks", file);
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_THAT(text.str(),
              StartsWith("# ringfold bench --calibrate on two ranks: 40 packs, median error 1.2 %, worst "
                         "5.5 %, 2 outliers\n# not measured, only scaled along: cross_node_bytes_per_us\n"));
  expect_equal(cost_model_of(file), odd_model());
  std::remove(file.c_str());
}

TEST(CostModelFile, whatever_is_wrong_is_named_with_line_key_and_remedy) {
  const std::string good = cost_model_to_toml(odd_model(), "good");
  EXPECT_EQ(complaint(replaced(good, "fixed_us", "fixd_us")),
            "[cost_model] cost.toml:5: pack.fixd_us: unknown key. Hint: did you mean pack.fixed_us?");
  EXPECT_EQ(
      complaint(replaced(good, "[pack]", "[pack]\nzzzzzzzzzzzzzzzzzzzzzz = 1")),
      "[cost_model] cost.toml:5: pack.zzzzzzzzzzzzzzzzzzzzzz: unknown key. Hint: see docs/reference/cost_model.md");
  EXPECT_THAT(complaint(replaced(good, "layers = 12\n", "")),
              StartsWith("[cost_model] cost.toml: exchange.layers is missing. Hint: every key of "));
  EXPECT_THAT(complaint("schema = 1\n"), StartsWith("[cost_model] cost.toml: [pack] is missing. Hint: "));
  EXPECT_THAT(complaint(""), StartsWith("[cost_model] cost.toml: schema is missing. Hint: "));
  EXPECT_THAT(complaint(replaced(good, "schema = 1", "schema = 2")),
              StartsWith("[cost_model] cost.toml:2: schema: got another version of this file, expected 1. Hint: "));
  EXPECT_THAT(
      complaint(replaced(good, "us_per_token = ", "us_per_token = -")),
      AllOf(StartsWith("[cost_model] cost.toml:6: pack.us_per_token: got -"), HasSubstr(", expected a number > 0")));
  EXPECT_THAT(complaint(replaced(good, "hop_latency_us = 25.0", "hop_latency_us = nan")),
              HasSubstr("exchange.hop_latency_us: got nan, expected a number >= 0. Hint: "));
  EXPECT_THAT(complaint(replaced(good, "hop_latency_us = 25.0", "hop_latency_us = \"fast\"")),
              HasSubstr("exchange.hop_latency_us: got a string, expected a number >= 0"));
  EXPECT_THAT(complaint(replaced(good, "node_size = 4", "node_size = 0")),
              HasSubstr("exchange.node_size: got 0, expected an integer from 1 to 1048576. Hint: "));
  EXPECT_THAT(complaint(replaced(good, "node_size = 4", "node_size = 4.5")), HasSubstr("exchange.node_size: got 4.5"));
  EXPECT_THAT(complaint(replaced(good, "[512.0, ", "[")), HasSubstr("got 4 lengths and 5 rates, expected as many"));
  EXPECT_THAT(complaint(replaced(good, "[512.0, ", "[2048.0, ")), HasSubstr("got lengths that do not rise"));
  EXPECT_THAT(complaint(replaced(good, "rate_length_tokens = [", "rate_length_tokens = 3 #")),
              HasSubstr("attention.rate_length_tokens: expected an array of 1 to 64 numbers"));
  EXPECT_THAT(complaint(good + "\n[pack]\n"), StartsWith("[cost_model] cost.toml:25: broken TOML: "));
  EXPECT_THAT(complaint("pack = 3\nschema = 1\n"), HasSubstr("pack: got 3, expected a table. Hint: write [pack]"));
}

TEST(CostModelFile, names_and_files_that_are_not_there) {
  EXPECT_EQ(cost_model_of("megatron-small").layers, 12);
  const auto told = [](const std::string& name) -> std::string {
    try {
      cost_model_of(name);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kUsage);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(told("qwen3-4c"),
            "[cost_model] --cost-model: got \"qwen3-4c\", expected qwen3-4b or qwen3-30b-a3b or megatron-small or a "
            "FILE.toml. Hint: did you mean \"qwen3-4b\"?");
  EXPECT_THAT(told("/nowhere/cost.toml"),
              StartsWith("[cost_model] /nowhere/cost.toml: cannot read: No such file or directory. Hint: "));
  EXPECT_THROW(save_calibration({odd_model(), 3, 0, 0, 0, {}}, "x", "/nowhere/cost.toml"), RunError);
}

}  // namespace
}  // namespace ringfold
