// The subcommands that run on all ranks: thin doors to src/ringfold/train.
#include "commands.h"
#include "ringfold/train/bench.h"
#include "ringfold/train/logprob_run.h"
#include "ringfold/train/parity.h"
#include "ringfold/train/rl_run.h"
#include "ringfold/train/trainer.h"

namespace ringfold {

int run_train(const RunSettings& settings, const CommandOptions&) {
  return run_training(settings);
}

int run_logprob(const RunSettings& settings, const CommandOptions&) {
  return run_log_probs(settings);
}

int run_parity(const RunSettings& settings, const CommandOptions& options) {
  return run_parity_check(settings, options.json);
}

int run_bench(const RunSettings& settings, const CommandOptions& options) {
  return run_bench_policies(settings, options.bench, options.json);
}

int run_rl_loop(const RunSettings& settings, const CommandOptions&) {
  return run_rl(settings);
}

}  // namespace ringfold
