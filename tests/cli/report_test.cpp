// `ringfold report`, `plan --trace` and cost models from files, from outside.
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

// A run's folder of one step with its plan and timeline, from what the program itself plans.
std::string write_run(const std::string& name) {
  const std::string folder = ::testing::TempDir() + "ringfold_report_" + std::to_string(getpid()) + "_" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const Outcome planned = run_binary({"plan", "--lengths", "4000,900", "--world-size", "4", "--rollout-max-context-len",
                                      "4096", "--max-tokens-per-gpu", "1024", "--dynamic-context-parallel",
                                      "--use-dynamic-batch-size", "--calculate-per-token-loss", "--json"});
  EXPECT_EQ(planned.code, 0) << planned.err;
  const json plan = json::parse(planned.out);
  json lengths = json::array(), measured = json::array({json::array(), json::array(), json::array(), json::array()});
  for (const json& step : plan["micro_steps"]) {
    for (const json& group : step["groups"]) {
      for (const json& id : group["samples"]) lengths.push_back(id == 0 ? 4000 : 900);
      for (const json& rank : group["ranks"]) {
        measured[rank.get<size_t>()].push_back(group["start_us"]);
        measured[rank.get<size_t>()].push_back(group["start_us"].get<double>() + group["cost"].get<double>());
      }
    }
  }
  std::ofstream(folder + "/timeline.jsonl") << json{{"schema", 1},
                                                    {"step", 1},
                                                    {"step_us", plan["summary"]["makespan"]},
                                                    {"lengths", lengths},
                                                    {"measured_us", measured},
                                                    {"plan", plan}}
                                            << "\n";
  std::ofstream(folder + "/metrics.jsonl")
      << R"({"step":1,"epoch":1.0,"loss":2.5,"loss_tokens":9,"grad_norm":1.0,"lr":0.1,"samples":[0,1],"tokens":4900,)"
         R"("sum_squared_tokens":16810000,"cp_histogram":{"1":1,"4":1},"cp_token_share":{"1":0.2,"4":0.8},)"
         R"("micro_steps":2,"budget_use":0.9,"padding_waste":0.0,"idle_share":[0.0,0.1,0.1,0.1],)"
         R"("exposed_comm_ms":1.0,"entropy":1.0,"plan_ms":0.1,"step_ms":300.0,"tokens_per_s":16000.0,)"
         R"("tflops_per_gpu":1.0,"peak_memory_bytes":1})"
         "\n";
  return folder;
}

TEST(Report, writes_the_page_into_the_run_or_where_it_is_told) {
  const std::string run = write_run("page");
  const Outcome outcome = run_binary({"report", run});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "report             " + run + "/report.html\n");
  EXPECT_THAT(read_file(run + "/report.html"), HasSubstr("Who ran what, when: step 1"));
  const Outcome elsewhere = run_binary({"report", run, "-o", run + "/other.html", "--step", "1"});
  EXPECT_EQ(elsewhere.code, 0) << elsewhere.err;
  EXPECT_EQ(read_file(run + "/other.html"), read_file(run + "/report.html"));
  EXPECT_THAT(refusal({"report", run, "--step", "9"}), StartsWith("[report] --step: got 9, which left no timeline"));
  EXPECT_THAT(refusal({"report", run, "-o", "/no/such/folder/x.html"}, 4),
              HasSubstr("cannot write /no/such/folder/x.html"));
  std::filesystem::remove_all(run);
}

TEST(Report, writes_a_trace_that_is_json) {
  const std::string run = write_run("trace");
  const Outcome outcome = run_binary({"report", run, "--trace", run + "/trace.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("trace              " + run + "/trace.json\n"));
  int measured = 0;
  const json trace = json::parse(read_file(run + "/trace.json"));
  for (const json& event : trace["traceEvents"]) measured += event["ph"] == "X" && event["pid"] == 1;
  EXPECT_GE(measured, 4 + 1);
  std::filesystem::remove(run + "/timeline.jsonl");
  EXPECT_THAT(refusal({"report", run, "--trace", run + "/trace.json"}), HasSubstr("holds no timeline.jsonl, expected"));
  std::filesystem::remove_all(run);
}

TEST(Report, refuses_what_is_no_run) {
  EXPECT_THAT(refusal({"report"}), StartsWith("[flags] report: got no RUN, expected one. Hint: ringfold report RUN"));
  EXPECT_THAT(refusal({"report", "/no/such/run"}), HasSubstr("/no/such/run: holds no metrics.jsonl, expected the "));
  const std::string run = write_run("broken");
  std::ofstream(run + "/metrics.jsonl", std::ios::app) << "{\"step\":2}\n";
  EXPECT_THAT(refusal({"report", run}), HasSubstr("metrics.jsonl:2: epoch is missing from the record. Hint: "));
  std::filesystem::remove_all(run);
}

TEST(Plan, writes_a_chrome_trace) {
  const std::string file = write_temp("trace.json", "");
  const Outcome outcome = run_binary({"plan", "--lengths", "900,800,100", "--world-size", "2", "--trace", file});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("trace              " + file));
  EXPECT_EQ(json::parse(read_file(file))["traceEvents"].back()["ph"], "X");
  std::remove(file.c_str());
}

const char* kCost = R"(schema = 1
[pack]
fixed_us = 100.0
us_per_token = 1
us_per_vision_token = 0
[attention]
flops_per_token2 = 0
rate_length_tokens = [512.0]
rate_flops_per_us = [1.0]
[exchange]
layers = 0
node_size = 8
kv_bytes_per_token_layer = 0
hop_latency_us = 0
node_bytes_per_us = 1
cross_node_hop_latency_us = 0
cross_node_bytes_per_us = 1
)";

TEST(Plan, takes_a_cost_model_from_a_file) {
  const std::string file = write_temp("cost.toml", kCost);
  const std::vector<std::string> plan = {"plan", "--lengths", "900,800", "--world-size", "1", "--json", "--cost-model"};
  auto own = plan;
  own.push_back(file);
  const Outcome outcome = run_binary(own);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  // One sample a pack: 100 us each and 1 us a token.
  EXPECT_EQ(json::parse(outcome.out)["summary"]["makespan"], 1900.0);
  const Outcome simulated = run_binary(
      {"simulate", "--lengths", "900,800", "--max-tokens-per-gpu", "1000", "--world-size", "1", "--cost-model", file});
  EXPECT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_THAT(simulated.out, HasSubstr("times by the " + file + " cost model"));

  std::ofstream(file, std::ios::app) << "nodesize = 4\n";
  EXPECT_THAT(refusal(own), HasSubstr(file + ":18: exchange.nodesize: unknown key. Hint: did you mean "
                                             "exchange.node_size?"));
  std::remove(file.c_str());
  auto unknown = plan;
  unknown.push_back("qwen3-8b");
  EXPECT_THAT(refusal(unknown), StartsWith("[cost_model] --cost-model: got \"qwen3-8b\", expected qwen3-4b or "));
}

}  // namespace
}  // namespace ringfold
