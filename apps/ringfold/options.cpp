#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "flags.h"
#include "recipe.h"
#include "ringfold/base/nearest.h"

namespace ringfold {
namespace {

// A flag as found on the command line.
struct Given {
  const Flag* flag;
  std::string text;
};

std::string where_of(const Flag& flag) {
  return "[flags] --" + flag.name;
}

std::string commands_of(const Flag& flag) {
  std::vector<std::string> names;
  for (const Command command : all_commands()) {
    if (flag.belongs_to(command)) names.push_back(name_of(command));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

[[noreturn]] void refuse_unknown(const std::string& argument, Command command, const std::vector<Flag>& flags) {
  if (!argument.starts_with("-")) {
    throw UsageError(
        fmt::format("[flags] got \"{}\", expected a flag. Hint: see ringfold {} --help", argument, name_of(command)));
  }
  const std::string name = argument.substr(
      argument.find_first_not_of('-') == std::string::npos ? argument.size() : argument.find_first_not_of('-'));
  const std::string bare = name.substr(0, name.find('='));
  std::vector<std::string> known = {"config", "help"};
  for (const Flag& flag : flags) {
    if (flag.name == bare && bare == "world-size") {
      throw UsageError(
          fmt::format("[flags] --world-size: belongs to plan, not to {}. Hint: the launcher says how many "
                      "ranks there are: ringfold launch -n N -- {} ...",
                      name_of(command), name_of(command)));
    }
    if (flag.name == bare) {
      throw UsageError(
          fmt::format("[flags] --{}: belongs to {}, not to {}", bare, commands_of(flag), name_of(command)));
    }
    if (flag.belongs_to(command) && !flag.hidden) known.push_back(flag.name);
  }
  const std::string near = nearest_name(bare, known);
  throw UsageError(fmt::format("[flags] unknown flag {}. Hint: {}", argument.substr(0, argument.find('=')),
                               near.empty() ? fmt::format("see ringfold {} --help", name_of(command))
                                            : fmt::format("did you mean --{}?", near)));
}

// What is not built is refused before its value is looked at: other trainers have some of these as switches.
void refuse_not_built(Command command, const std::vector<std::string>& arguments, const std::vector<Flag>& flags) {
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--")) continue;
    const std::string name = argument.substr(2, argument.find('=') - 2);
    for (const Flag& flag : flags) {
      if (flag.hidden && flag.belongs_to(command) && flag.name == name) flag.set("", where_of(flag));
    }
  }
}

bool has_flag(const std::vector<Flag>& flags, const std::string& name) {
  return std::any_of(flags.begin(), flags.end(), [&](const Flag& flag) { return flag.name == name; });
}

void add_flag(CLI::App& app, const Flag& flag, const std::vector<Flag>& flags, std::vector<Given>& given) {
  const std::string group = flag.hidden ? "" : flag.group;
  if (flag.kind == FlagKind::kSwitch) {
    app.add_flag_function(
           "--" + flag.name,
           [&given, &flag](int64_t) {
             given.push_back({&flag, "true"});
           },
           flag.help)
        ->disable_flag_override()
        ->group(group);
    // Turns a switch of the recipe off; in --help only where it is a flag of its own.
    if (!flag.name.starts_with("no-") && !has_flag(flags, "no-" + flag.name)) {
      app.add_flag_function(
             "--no-" + flag.name,
             [&given, &flag](int64_t) {
               given.push_back({&flag, "false"});
             },
             "")
          ->disable_flag_override()
          ->group("");
    }
    return;
  }
  const std::string names = flag.name == "processes" ? "-n,--processes" : "--" + flag.name;
  app.add_option_function<std::string>(
         names,
         [&given, &flag](const std::string& text) {
           given.push_back({&flag, text});
         },
         flag.help)
      ->type_name(flag.placeholder)
      ->take_last()
      ->group(group);
}

// Flags of the command line in the table's order, and the recipe's file.
struct CommandLine {
  std::vector<Given> given;
  std::string config;
  std::string file;  // positional FILE of plan
  std::optional<std::string> help;
};

CommandLine read_command_line(Command command, const std::vector<std::string>& arguments,
                              const std::vector<Flag>& flags) {
  refuse_not_built(command, arguments, flags);
  CommandLine line;
  CLI::App app{summary_of(command), "ringfold " + name_of(command)};
  app.allow_extras();
  app.footer("Example:\n  " + example_of(command));
  app.get_formatter()->column_width(40);
  for (const Flag& flag : flags) {
    if (flag.belongs_to(command)) add_flag(app, flag, flags, line.given);
  }
  if (command != Command::kLaunch) {
    app.add_option("--config", line.config, "recipe: keys are names of flags, flags win")
        ->type_name("FILE.toml")
        ->take_last();
  }
  if (command == Command::kPlan || command == Command::kSimulate) {
    app.add_option("FILE", line.file, "samples (.jsonl, .jsonl.gz) or a lengths file")->type_name("");
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    line.help = app.help();
    return line;
  } catch (const CLI::ArgumentMismatch& error) {
    // Texts of CLI11 2.1: "--lr: 1 required X missing", "json was given a disallowed flag override".
    const std::string text = error.what();
    const size_t begin = std::min(text.find_first_not_of('-'), text.size());
    const std::string name = text.substr(begin, text.find_first_of(": ", begin) - begin);
    throw UsageError(
        fmt::format("[flags] --{}: {}", name,
                    text.find("missing") != std::string::npos ? "got no value, expected one" : "takes no value"));
  } catch (const CLI::ParseError& error) {
    const std::string text = error.what();
    throw UsageError("[flags] " + text.substr(0, text.find('\n')));
  }
  if (const auto extras = app.remaining(); !extras.empty()) refuse_unknown(extras.front(), command, flags);
  return line;
}

void check_given(const std::vector<Given>& given) {
  const auto has = [&given](const std::string& name) {
    return std::any_of(given.begin(), given.end(), [&](const Given& g) { return g.flag->name == name; });
  };
  for (const Given& g : given) {
    if (g.flag->kind == FlagKind::kSwitch && has("no-" + g.flag->name)) {
      throw UsageError(fmt::format("[flags] --{0} and --no-{0}: got both, expected one of them", g.flag->name));
    }
    if (g.flag->kind != FlagKind::kSwitch && g.text.starts_with("--")) {
      throw UsageError(fmt::format("{}: got no value but {}, expected one", where_of(*g.flag), g.text));
    }
  }
}

// Flags of which a run takes one: the command line's wins over another one in the recipe.
bool same_choice(const std::string& a, const std::string& b) {
  const auto group = [](const std::string& name) {
    if (name == "lengths" || name == "lengths-file" || name == "data") return 1;
    if (name == "model" || name == "model-config") return 2;
    if (name == "shuffle" || name == "no-shuffle") return 3;
    if (name == "progress" || name == "no-progress") return 4;
    return 0;
  };
  return a == b || (group(a) != 0 && group(a) == group(b));
}

bool overridden(const Flag& flag, const CommandLine& line) {
  if (!line.file.empty() && same_choice(flag.name, "data")) return true;
  return std::any_of(line.given.begin(), line.given.end(),
                     [&](const Given& given) { return same_choice(flag.name, given.flag->name); });
}

// Refusals that need more than one flag and no file; what concerns CP sizes is derive_topology's.
void check_together(Command command, const RunSettings& s, const CommandOptions& options) {
  const bool runs = command == Command::kTrain || command == Command::kLogprob || command == Command::kParity ||
                    command == Command::kBench;
  const auto single = [&](int size, const char* flag) {
    if (!runs || size == 1) return;
    throw UsageError(
        fmt::format("[flags] {}: got {}, expected 1: not built yet for `{}`. Hint: use more "
                    "context-parallel ranks; `ringfold plan` takes any size",
                    flag, size, name_of(command)));
  };
  single(s.parallel.tensor_model_parallel_size, "--tensor-model-parallel-size");
  single(s.parallel.pipeline_model_parallel_size, "--pipeline-model-parallel-size");
  if (command == Command::kTrain && s.eval_interval > 0 && s.eval_data_file.empty()) {
    throw UsageError(fmt::format("[flags] --eval-interval: got {} without --eval-data. Hint: add --eval-data FILE",
                                 s.eval_interval));
  }
  if (command == Command::kTrain && s.lr_decay_style == LrDecay::kCosine && s.min_lr > s.lr) {
    throw UsageError(fmt::format("[flags] --min-lr: got {}, expected at most --lr {}", s.min_lr, s.lr));
  }
  if (command == Command::kPlan && options.step_given && s.global_batch_size == 0) {
    throw UsageError(
        fmt::format("[flags] --step: got {} without --global-batch-size, where all samples are one step. "
                    "Hint: add --global-batch-size N",
                    options.step));
  }
}

bool is_jsonl(const std::string& file) {
  return file.ends_with(".jsonl") || file.ends_with(".jsonl.gz");
}

}  // namespace

Command find_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command command : all_commands()) {
    if (name_of(command) == name) return command;
    names.push_back(name_of(command));
  }
  for (const std::string later : {"report", "doctor", "rl"}) {
    if (name == later) {
      throw UsageError(
          fmt::format("[flags] `ringfold {}` is not built yet. Hint: built are {}", name, fmt::join(names, ", ")));
    }
  }
  const std::string near = nearest_name(name, names);
  throw UsageError(fmt::format("[flags] unknown subcommand \"{}\", expected one of {}{}", name, fmt::join(names, ", "),
                               near.empty() ? "" : fmt::format(". Hint: did you mean {}?", near)));
}

ParsedCommand parse_command(Command command, const std::vector<std::string>& arguments) {
  ParsedCommand parsed;
  // Bare lengths have an order that means something; training shuffles.
  if (command == Command::kPlan || command == Command::kSimulate) parsed.settings.shuffle = false;
  const std::vector<Flag> flags = make_flags(parsed.settings, parsed.options);
  std::vector<std::string> own = arguments;
  if (command == Command::kLaunch) {
    const auto end = std::find(own.begin(), own.end(), "--");
    if (end != own.end()) parsed.options.launch_command.assign(end + 1, own.end());
    own.erase(end, own.end());
  }
  const CommandLine line = read_command_line(command, own, flags);
  if (line.help) {
    parsed.help = line.help;
    return parsed;
  }
  check_given(line.given);
  if (!line.config.empty()) {
    for (const RecipeEntry& entry : read_recipe(line.config, flags, command)) {
      if (overridden(*entry.flag, line)) continue;
      entry.flag->set(entry.text, entry.where);
      if (!entry.flag->belongs_to(command)) parsed.options.unused_keys.push_back(entry.flag->name);
    }
  }
  for (const Given& given : line.given) given.flag->set(given.text, where_of(*given.flag));
  if (!line.file.empty()) {
    std::string& target = is_jsonl(line.file) ? parsed.settings.data_file : parsed.options.lengths_file;
    if (!target.empty()) {
      throw UsageError(fmt::format("[flags] got the file {} and also {}, expected one", line.file, target));
    }
    target = line.file;
  }
  check_together(command, parsed.settings, parsed.options);
  return parsed;
}

std::string program_help() {
  std::string text =
      "Ringfold: post-training with dynamic context parallelism.\n"
      "Usage: ringfold SUBCOMMAND [FLAGS]\n\nSubcommands:\n";
  for (const Command command : all_commands())
    text += fmt::format("  {:<9} {}\n", name_of(command), summary_of(command));
  return text + fmt::format(
                    "\nFlags of a subcommand: ringfold SUBCOMMAND --help. A recipe holds the same keys: --config "
                    "FILE.toml.\n\nExample:\n  {}\n",
                    example_of(Command::kPlan));
}

}  // namespace ringfold
