#include "ringfold/data/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/temp_file.h"
#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Lengths, are_read_from_text_and_files) {
  EXPECT_THAT(parse_lengths("900,100, 7", "[flags] --lengths"), ElementsAre(900, 100, 7));
  EXPECT_THAT(load_lengths(TempFile("900\n\n100 # a comment\r\n# another\n7,8\t9\n", ".txt").path()),
              ElementsAre(900, 100, 7, 8, 9));
  EXPECT_THAT(load_lengths(TempFile("5\n6", ".txt.gz", true).path()), ElementsAre(5, 6));
}

TEST(Lengths, what_is_no_length_is_named) {
  for (const char* word : {"0", "-3", "1.5", "x", "99999999999999999999", "7x"}) {
    EXPECT_THAT([&] { parse_lengths(std::string("4,") + word, "[flags] --lengths"); },
                ThrowsMessage<DataError>(HasSubstr(std::string("[flags] --lengths (sample 1): length: got \"") + word +
                                                   "\", expected an integer >= 1")));
  }
  EXPECT_THAT([] { parse_lengths("900\n\x1b[2J", "[flags] --lengths"); },
              ThrowsMessage<DataError>(HasSubstr("got \"900??[2J\"")))
      << "no control characters on a terminal";
  const TempFile file("900\n100\nlength\n", ".txt");
  EXPECT_THAT([&] { load_lengths(file.path()); },
              ThrowsMessage<DataError>(HasSubstr(file.path() + ":3 (sample 2): length: got \"length\"")));
  EXPECT_THAT([] { parse_lengths(" ,", "[flags] --lengths"); }, ThrowsMessage<DataError>(HasSubstr("no length given")));
  EXPECT_THAT([] { load_lengths(TempFile("# none\n", ".txt").path()); },
              ThrowsMessage<DataError>(HasSubstr("no length in the file")));
}

}  // namespace
}  // namespace ringfold
