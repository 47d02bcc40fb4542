// `ringfold report`: a run's folder as one page. Needs no torch, no GPU and no other rank.
#include <fmt/format.h>

#include "commands.h"
#include "output.h"
#include "ringfold/base/log.h"
#include "ringfold/mesh/launch_env.h"
#include "ringfold/report/chrome_trace.h"
#include "ringfold/report/cost_model_file.h"
#include "ringfold/report/run_html.h"

namespace ringfold {

int run_report(const RunSettings& settings, const CommandOptions& options) {
  if (read_launch_env().rank.value() > 0) return 0;
  if (options.run_dir.empty()) throw UsageError("[flags] report: got no RUN, expected one. Hint: ringfold report RUN");
  const RunRecord run = load_run(options.run_dir);
  for (const std::string& note : run.notes) log::warning(note);
  const std::string page = options.report_file.empty() ? options.run_dir + "/report.html" : options.report_file;
  write_file(page, run_to_html({run, options.step_given ? options.step : 0, cost_model_of(settings.cost_model)}));
  std::string text = fmt::format("report             {}\n", page);
  if (!options.trace_file.empty()) {
    if (run.timelines.empty()) {
      throw UsageError(
          fmt::format("[report] --trace: {} holds no timeline.jsonl, expected one. Hint: ringfold plan "
                      "--trace draws a plan without a run",
                      options.run_dir));
    }
    write_file(options.trace_file, chrome_trace(run.timelines));
    text += fmt::format("trace              {}\n", options.trace_file);
  }
  write_stdout(text);
  return 0;
}

}  // namespace ringfold
