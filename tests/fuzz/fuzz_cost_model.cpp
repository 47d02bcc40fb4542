// Cost models in TOML.
#include "fuzz/fuzz_target.h"
#include "ringfold/report/cost_model_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringfold;
  fuzz::expect_value_or_message([&] {
    const CostModel model = parse_cost_model(std::string(fuzz::as_text(data, size)), "cost.toml");
    const std::string text = cost_model_to_toml(model, "again");
    fuzz::require(cost_model_to_toml(parse_cost_model(text, "again"), "again") == text, "not the same model", text);
    const int64_t length = 5000;
    fuzz::require(model.pack_us(std::span(&length, 1), CpSize{4}) >= 0, "a time below 0");
  });
  return 0;
}
