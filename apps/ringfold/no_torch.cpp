// The build without torch: subcommands that need it are refused by name. Twin of train.cpp, convert.cpp and the like.
#include <fmt/format.h>

#include "commands.h"
#include "output.h"

namespace ringfold {
namespace {

int refuse(const char* command) {
  throw UsageError(
      fmt::format("[build] `ringfold {}` needs torch, and this binary was built without it. Hint: configure "
                  "with -DRINGFOLD_WITH_TORCH=ON (cmake --preset dev); `ringfold plan` works here",
                  command));
}

}  // namespace

int run_train(const RunSettings&, const CommandOptions&) {
  return refuse("train");
}
int run_logprob(const RunSettings&, const CommandOptions&) {
  return refuse("logprob");
}
int run_parity(const RunSettings&, const CommandOptions&) {
  return refuse("parity");
}
int run_bench(const RunSettings&, const CommandOptions&) {
  return refuse("bench");
}
int run_rl_loop(const RunSettings&, const CommandOptions&) {
  return refuse("rl");
}
int run_convert(const RunSettings&, const CommandOptions&) {
  return refuse("convert");
}
int run_doctor(const RunSettings&, const CommandOptions&) {
  return refuse("doctor");
}
int run_launch(const RunSettings&, const CommandOptions&) {
  return refuse("launch");
}

int refuse_parallel_start(const Error& error) {
  return print_error(error);
}
int run_parallel(const std::function<int()>& command) {
  return command();
}

}  // namespace ringfold
