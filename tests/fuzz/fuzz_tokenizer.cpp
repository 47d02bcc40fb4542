// tokenizer.json; a tokenizer that was accepted encodes a text and decodes it again.
#include "fuzz/fuzz_target.h"
#include "ringfold/data/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringfold;
  fuzz::expect_value_or_message([&] {
    const Tokenizer tokenizer = Tokenizer::from_json(fuzz::as_text(data, size));
    const std::string text = "It's 12 o'clock,\r\n\n  caf\xC3\xA9 e\xCC\x81 \xF0\x9F\x99\x82 <|x|> " +
                             std::string(fuzz::as_text(data, std::min<size_t>(size, 40)));
    const std::vector<int64_t> ids = tokenizer.encode(text);
    for (const int64_t id : ids) fuzz::require(id >= 0 && id < tokenizer.vocab_size(), "id outside the vocabulary");
    fuzz::require(tokenizer.decode(ids) == tokenizer.normalized(text), "no round trip");
  });
  return 0;
}
