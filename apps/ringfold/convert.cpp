// `ringfold convert`: checkpoints of other projects -> Hugging Face layout.
#include <fmt/format.h>

#include "commands.h"
#include "output.h"
#include "ringfold/mesh/launch_env.h"
#include "ringfold/models/llama/llama2c.h"

namespace ringfold {

int run_convert(const RunSettings&, const CommandOptions& options) {
  if (read_launch_env().rank.value() > 0) return 0;  // one rank writes
  if (options.llama2c_file.empty() || options.output_dir.empty()) {
    throw UsageError("[flags] convert needs both --llama2c FILE.bin and --output DIR");
  }
  convert_llama2c(options.llama2c_file, options.output_dir);
  write_stdout(fmt::format("wrote {0}/config.json and {0}/model.safetensors\n", options.output_dir));
  return 0;
}

}  // namespace ringfold
