// What --help says of each subcommand.
#include "flags.h"

namespace ringfold {

const std::vector<Command>& all_commands() {
  static const std::vector<Command> commands = {
      Command::kPlan, Command::kSimulate, Command::kTrain,   Command::kLogprob, Command::kParity, Command::kBench,
      Command::kRl,   Command::kReport,   Command::kConvert, Command::kLaunch,  Command::kDoctor};
  return commands;
}

std::string name_of(Command command) {
  switch (command) {
    case Command::kPlan:
      return "plan";
    case Command::kSimulate:
      return "simulate";
    case Command::kTrain:
      return "train";
    case Command::kLogprob:
      return "logprob";
    case Command::kParity:
      return "parity";
    case Command::kBench:
      return "bench";
    case Command::kRl:
      return "rl";
    case Command::kReport:
      return "report";
    case Command::kConvert:
      return "convert";
    case Command::kLaunch:
      return "launch";
    case Command::kDoctor:
      return "doctor";
  }
  return "";
}

std::string summary_of(Command command) {
  switch (command) {
    case Command::kPlan:
      return "dry run: plan steps for given lengths, and what static CP would cost (no model, no GPU)";
    case Command::kSimulate:
      return "play policies through side by side on any number of ranks (no model, no GPU)";
    case Command::kTrain:
      return "train a model (SFT or RL) with dynamic context parallelism";
    case Command::kLogprob:
      return "score samples: log-prob and entropy of every response token";
    case Command::kParity:
      return "prove a layout: the same step on one rank and in this layout, side by side";
    case Command::kBench:
      return "time policies against each other on the same samples";
    case Command::kRl:
      return "improve a model on its own responses: rollout, rewards, training, in one loop";
    case Command::kReport:
      return "draw a run: loss, throughput, what each rank did, static beside dynamic (one page, opens offline)";
    case Command::kConvert:
      return "convert a llama2.c checkpoint to a Hugging Face folder";
    case Command::kLaunch:
      return "start N ranks of a subcommand on this machine";
    case Command::kDoctor:
      return "check this machine, or under a launcher the whole job, and say what to do";
  }
  return "";
}

std::string example_of(Command command) {
  const std::string layout =
      "--dynamic-context-parallel --use-dynamic-batch-size --calculate-per-token-loss --rollout-max-context-len 4096 "
      "--max-tokens-per-gpu 1024";
  switch (command) {
    case Command::kPlan:
      return "ringfold plan --lengths 900,800,4000,100,100 --world-size 4 " + layout;
    case Command::kSimulate:
      return "ringfold simulate --law mm --samples 512 --world-size 64";
    case Command::kTrain:
      return "ringfold launch -n 4 -- train --model DIR --data FILE.jsonl --output-dir RUN " + layout;
    case Command::kLogprob:
      return "ringfold launch -n 4 -- logprob --model DIR --data FILE.jsonl --output scores.jsonl " + layout;
    case Command::kParity:
      return "ringfold launch -n 4 -- parity --model DIR --data FILE.jsonl --dtype float64 " + layout;
    case Command::kBench:
      return "ringfold launch -n 4 -- bench --model-config config.json --lengths-file lengths.txt --policies "
             "static,uniform " +
             layout;
    case Command::kRl:
      return "ringfold launch -n 4 -- rl --model DIR --data PROMPTS.jsonl --output-dir RUN --objective grpo "
             "--num-rollout "
             "100 --rollout-stop-token-ids 151645 " +
             layout;
    case Command::kReport:
      return "ringfold report RUN -o report.html";
    case Command::kConvert:
      return "ringfold convert --llama2c stories260K.bin --output stories260K";
    case Command::kLaunch:
      return "ringfold launch -n 4 -- train --config recipe.toml";
    case Command::kDoctor:
      return "ringfold launch -n 4 -- doctor --output-dir RUN";
  }
  return "";
}

}  // namespace ringfold
