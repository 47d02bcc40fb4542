// TOML recipes, down to the values of the flags that they set.
#include "flags.h"
#include "fuzz/fuzz_target.h"
#include "recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringfold;
  const std::string text(fuzz::as_text(data, size));
  for (const Command command : {Command::kTrain, Command::kPlan}) {
    RunSettings settings;
    CommandOptions options;
    const std::vector<Flag> flags = make_flags(settings, options);
    fuzz::expect_value_or_message([&] {
      for (const RecipeEntry& entry : parse_recipe(text, "recipe.toml", flags, command)) {
        fuzz::expect_value_or_message([&] { entry.flag->set(entry.text, entry.where); });
      }
    });
  }
  return 0;
}
