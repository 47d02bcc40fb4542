// config.json of a model.
#include "fuzz/fuzz_target.h"
#include "ringfold/models/common/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringfold;
  fuzz::expect_value_or_message([&] {
    const ModelConfig config = parse_model_config(std::string(fuzz::as_text(data, size)), "config.json");
    fuzz::require(config.num_attention_heads % config.num_key_value_heads == 0 && config.head_dim % 2 == 0, "heads");
    config.parameter_count();
    config.train_flops(1000, 1000000);
    // What an export writes is read back as the same model.
    const ModelConfig again = parse_model_config(config_json(config, "float32"), "config.json");
    fuzz::require(again.parameter_count() == config.parameter_count(), "another model after writing and reading");
  });
  return 0;
}
