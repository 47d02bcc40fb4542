// The program: finds the subcommand, reads its flags, runs it, and turns whatever went wrong into one line.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "commands.h"
#include "flags.h"
#include "options.h"
#include "output.h"
#include "ringfold/base/log.h"
#include "ringfold/mesh/launch_env.h"

namespace ringfold {
namespace {

void set_log_level(const std::string& name) {
  const log::Level level = name == "debug"     ? log::Level::kDebug
                           : name == "warning" ? log::Level::kWarning
                           : name == "error"   ? log::Level::kError
                           : name == "off"     ? log::Level::kOff
                                               : log::Level::kInfo;
  log::set_level(level);
}

int dispatch(Command command, const RunSettings& settings, const CommandOptions& options) {
  switch (command) {
    case Command::kPlan:
      return run_plan(settings, options);
    case Command::kSimulate:
      return run_simulate(settings, options);
    case Command::kTrain:
      return run_train(settings, options);
    case Command::kLogprob:
      return run_logprob(settings, options);
    case Command::kParity:
      return run_parity(settings, options);
    case Command::kBench:
      return run_bench(settings, options);
    case Command::kRl:
      return run_rl_loop(settings, options);
    case Command::kReport:
      return run_report(settings, options);
    case Command::kConvert:
      return run_convert(settings, options);
    case Command::kLaunch:
      return run_launch(settings, options);
    case Command::kDoctor:
      return run_doctor(settings, options);
  }
  return 0;
}

bool needs_all_ranks(Command command) {
  return command == Command::kTrain || command == Command::kLogprob || command == Command::kParity ||
         command == Command::kBench || command == Command::kRl || command == Command::kDoctor;
}

// All ranks of a job have the same flags, so one of them says what is wrong with them.
int refuse_once(const UsageError& error) {
  return read_launch_env().rank.value() == 0 ? print_error(error) : static_cast<int>(error.exit_code());
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    throw UsageError("[flags] no subcommand. Hint: see ringfold --help, or try: " + example_of(Command::kPlan));
  }
  if (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    write_stdout(program_help());
    return 0;
  }
  if (arguments[0] == "--version") {
    write_stdout("ringfold " RINGFOLD_VERSION "\n");
    return 0;
  }
  Command command = Command::kPlan;
  try {
    command = find_command(arguments[0]);
  } catch (const UsageError& error) {
    return refuse_once(error);
  }
  ParsedCommand parsed;
  try {
    parsed = parse_command(command, {arguments.begin() + 1, arguments.end()});
  } catch (const UsageError& error) {
    return needs_all_ranks(command) ? refuse_parallel_start(error) : refuse_once(error);
  }
  if (parsed.help) {
    if (read_launch_env().rank.value() == 0) write_stdout(*parsed.help);
    return 0;
  }
  set_log_level(parsed.settings.log_level);
  if (!parsed.options.unused_keys.empty() && (command == Command::kLaunch || read_launch_env().rank.value() == 0)) {
    log::info(fmt::format("ringfold: keys of the recipe without a meaning for {}: {}", name_of(command),
                          fmt::join(parsed.options.unused_keys, ", ")));
  }
  if (!needs_all_ranks(command)) return dispatch(command, parsed.settings, parsed.options);
  return run_parallel([&] { return dispatch(command, parsed.settings, parsed.options); });
}

}  // namespace
}  // namespace ringfold

int main(int argc, char** argv) {
  using namespace ringfold;
  // A limit of file sizes is an error of the write, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return run({argv + 1, argv + argc});
  } catch (const Error& error) {
    return print_error(error);
  } catch (const std::bad_alloc&) {
    return print_error(RunError("[main] out of memory. Hint: a smaller --max-tokens-per-gpu, or more memory"));
  } catch (const std::exception& error) {
    return print_error(RunError(fmt::format("[main] {}", error.what())));
  }
}
