// The subcommands: what each is given, and one function a subcommand.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "ringfold/base/error.h"
#include "ringfold/train/bench.h"
#include "ringfold/train/settings.h"

namespace ringfold {

enum class Command : unsigned {
  kPlan,
  kSimulate,
  kTrain,
  kLogprob,
  kParity,
  kBench,
  kRl,
  kReport,
  kConvert,
  kLaunch,
  kDoctor
};

// What is no part of a run's settings.
struct CommandOptions {
  bool json = false;

  // plan
  std::string lengths, lengths_file;  // or RunSettings::data_file: exactly one
  bool world_size_given = false;
  int64_t step = 1;  // 1-based, as in metrics.jsonl
  bool step_given = false;
  bool timing = false;
  std::string html_file;

  // plan, report
  std::string trace_file;

  // report
  std::string run_dir, report_file;  // report_file empty: report.html in the run's folder

  // plan, simulate
  std::vector<std::string> skip_passes;
  std::string law;  // or one of the other sources of lengths

  // simulate
  int64_t simulated_steps = 0;  // 0: the whole epoch
  double noise = 0;
  std::vector<std::string> compare = {"static", "static_work", "uniform", "mixed"};  // the first is the baseline

  BenchSettings bench;
  std::string llama2c_file, output_dir;  // convert

  // launch
  int launch_processes = 0;
  std::vector<std::string> launch_command;  // what follows --

  // Keys of the recipe that this subcommand has no use for.
  std::vector<std::string> unused_keys;
};

// Each returns the exit code or throws Error.
int run_plan(const RunSettings& settings, const CommandOptions& options);
int run_simulate(const RunSettings& settings, const CommandOptions& options);
int run_train(const RunSettings& settings, const CommandOptions& options);
int run_logprob(const RunSettings& settings, const CommandOptions& options);
int run_parity(const RunSettings& settings, const CommandOptions& options);
int run_bench(const RunSettings& settings, const CommandOptions& options);
int run_rl_loop(const RunSettings& settings, const CommandOptions& options);
int run_report(const RunSettings& settings, const CommandOptions& options);
int run_convert(const RunSettings& settings, const CommandOptions& options);
int run_doctor(const RunSettings& settings, const CommandOptions& options);
int run_launch(const RunSettings& settings, const CommandOptions& options);

// Ends a parallel command whose flags are refused: once for all ranks. Returns the exit code.
int refuse_parallel_start(const Error& error);
// Runs a parallel command and returns its exit code; a failure on the way is told, or left to the rank with the cause.
// What the process does afterwards is bounded.
int run_parallel(const std::function<int()>& command);

}  // namespace ringfold
