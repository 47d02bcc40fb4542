// The head of a safetensors file, and the index of a sharded one.
#include "fuzz/fuzz_target.h"
#include "ringfold/models/common/safetensors_header.h"

namespace {

using namespace ringfold;

void check(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries) {
    fuzz::require(entry.begin == at && entry.end >= entry.begin, "overlap or hole", entry.name);
    at = entry.end;
    for (const int64_t dim : entry.shape) fuzz::require(dim >= 0, "negative dim", entry.name);
  }
  fuzz::require(at == data_bytes, "data not covered");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::expect_value_or_message([&] {
    for (const auto& [name, file] : parse_safetensors_index("model.safetensors.index.json", text)) {
      fuzz::require(!file.empty() && file.find('/') == std::string::npos && file != "..", "outside the folder", file);
    }
  });
  if (size < 8) return 0;
  fuzz::expect_value_or_message([&] {
    const uint64_t header_bytes = safetensors_header_bytes("model.safetensors", data, size);
    const uint64_t data_bytes = size - 8 - header_bytes;
    check(parse_safetensors_header("model.safetensors", text.substr(8, header_bytes), data_bytes), data_bytes);
  });
  return 0;
}
