// Lengths files, plain and gzip, and the list of --lengths.
#include "fuzz/fuzz_target.h"
#include "ringfold/data/lengths.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringfold;
  fuzz::expect_value_or_message([&] {
    for (const int64_t length : load_lengths(fuzz::MemoryFile(data, size).path())) {
      fuzz::require(length >= 1, "a length below 1");
    }
  });
  fuzz::expect_value_or_message([&] { parse_lengths(std::string(fuzz::as_text(data, size)), "[flags] --lengths"); });
  return 0;
}
