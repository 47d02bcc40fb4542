// vocab.json, merges.txt and tokenizer_config.json, cut apart at zero bytes.
#include "fuzz/fuzz_target.h"
#include "ringfold/data/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringfold;
  std::string_view rest = fuzz::as_text(data, size), parts[3];
  for (std::string_view& part : parts) {
    part = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  }
  fuzz::expect_value_or_message([&] {
    const Tokenizer tokenizer = Tokenizer::from_vocab(parts[0], parts[1], parts[2]);
    const std::string text = "It's 12 o'clock,\r\n\n  caf\xC3\xA9 ab abab";
    fuzz::require(tokenizer.decode(tokenizer.encode(text)) == tokenizer.normalized(text), "no round trip");
  });
  return 0;
}
