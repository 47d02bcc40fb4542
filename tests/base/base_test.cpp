#include <gtest/gtest.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "ringfold/base/error.h"
#include "ringfold/base/hash.h"
#include "ringfold/base/ids.h"
#include "ringfold/base/outside_text.h"
#include "ringfold/base/pow2.h"

namespace ringfold {
namespace {

TEST(Error, each_kind_carries_its_exit_code_and_text) {
  EXPECT_EQ(UsageError("a").exit_code(), ExitCode::kUsage);
  EXPECT_EQ(DataError("b").exit_code(), ExitCode::kUsage);
  EXPECT_EQ(RunError("c").exit_code(), ExitCode::kFailure);
  EXPECT_EQ(PeerError("d").exit_code(), ExitCode::kFailure);
  EXPECT_EQ(Error(ExitCode::kNoPlan, "e").exit_code(), ExitCode::kNoPlan);
  EXPECT_STREQ(UsageError("[plan] what: got 1, expected 2.").what(), "[plan] what: got 1, expected 2.");
}

TEST(Error, exit_codes_are_the_documented_numbers) {
  EXPECT_EQ(static_cast<int>(ExitCode::kOk), 0);
  EXPECT_EQ(static_cast<int>(ExitCode::kDifference), 1);
  EXPECT_EQ(static_cast<int>(ExitCode::kUsage), 2);
  EXPECT_EQ(static_cast<int>(ExitCode::kNoPlan), 3);
  EXPECT_EQ(static_cast<int>(ExitCode::kFailure), 4);
}

TEST(Error, a_lost_peer_is_caught_as_a_failed_run) {
  EXPECT_THROW(throw PeerError("rank 3 left"), RunError);
  EXPECT_THROW(throw DataError("line 5"), Error);
}

TEST(Result, holds_a_value_or_a_reason) {
  const Result<int> value(7);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value.value(), 7);
  const auto nothing = Result<int>::infeasible("too long");
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.reason(), "too long");
}

TEST(Result, a_string_value_is_not_taken_for_a_reason) {
  EXPECT_TRUE(Result<std::string>(std::string("text")).ok());
  EXPECT_FALSE(Result<std::string>::infeasible("text").ok());
}

TEST(Result, a_temporary_gives_its_value_away) {
  Result<std::vector<int>> result(std::vector<int>{1, 2, 3});
  const int* data = result.value().data();
  const std::vector<int> moved = std::move(result).value();
  EXPECT_EQ(moved.data(), data);
}

TEST(AssertDeathTest, prints_condition_place_and_message_and_aborts) {
  const int rank = 3;
  EXPECT_DEATH(RINGFOLD_ASSERT(rank < 2, "rank outside the lane"),
               "internal error at .*base_test.cpp:[0-9]+: rank outside the lane .rank < 2.");
}

TEST(Assert, evaluates_the_message_only_on_failure) {
  int built = 0;
  const auto message = [&] {
    ++built;
    return std::string("never");
  };
  RINGFOLD_ASSERT(built == 0, message());
  EXPECT_EQ(built, 0);
}

TEST(Hash, is_the_published_fnv1a) {
  Hash empty;
  EXPECT_EQ(empty.value(), 0xcbf29ce484222325ULL);
  Hash a;
  a.add_bytes("a", 1);
  EXPECT_EQ(a.value(), 0xaf63dc4c8601ec8cULL);
  Hash foobar;
  foobar.add_bytes("foobar", 6);
  EXPECT_EQ(foobar.value(), 0x85944171f73967e8ULL);
}

TEST(Hash, tells_apart_how_the_same_bytes_are_grouped) {
  Hash ab_c, a_bc;
  ab_c.add(std::string_view("ab"));
  ab_c.add(std::string_view("c"));
  a_bc.add(std::string_view("a"));
  a_bc.add(std::string_view("bc"));
  EXPECT_NE(ab_c.value(), a_bc.value());

  const std::vector<int64_t> values{1, 2, 3};
  Hash whole, parts;
  whole.add(std::span<const int64_t>(values));
  parts.add(std::span<const int64_t>(values).first(1));
  parts.add(std::span<const int64_t>(values).subspan(1));
  EXPECT_NE(whole.value(), parts.value());
}

TEST(OutsideText, shows_one_line_of_bounded_length) {
  EXPECT_EQ(printable("a\nb\x1b[2J\x7f"), "a?b?[2J?");
  EXPECT_EQ(printable("caf\xC3\xA9", 5), "caf\xC3\xA9");
  EXPECT_EQ(printable("caf\xC3\xA9s", 4), "caf...") << "no half character";
  EXPECT_EQ(printable(std::string(1000, 'x')).size(), 123U);
}

TEST(OutsideText, measures_nesting_outside_of_strings) {
  EXPECT_FALSE(nested_deeper_than(R"({"a":[1,{"b":[]}]})", 4));
  EXPECT_TRUE(nested_deeper_than(R"({"a":[1,{"b":[]}]})", 3));
  EXPECT_FALSE(nested_deeper_than(R"({"a":"[[[[[\"[[[["})", 1));
  EXPECT_FALSE(nested_deeper_than("[][][][]", 1));
  EXPECT_TRUE(nested_deeper_than(std::string(1000000, '['), 32));
}

TEST(Pow2, rounds_up_to_multiples_and_powers) {
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(1, 4), 1);
  EXPECT_EQ(ceil_div(8, 4), 2);
  EXPECT_EQ(round_up(9, 8), 16);
  EXPECT_EQ(round_up(16, 8), 16);
  EXPECT_EQ(next_power_of_2(0), 1);
  EXPECT_EQ(next_power_of_2(1), 1);
  EXPECT_EQ(next_power_of_2(3), 4);
  EXPECT_EQ(next_power_of_2(4), 4);
  EXPECT_EQ(next_power_of_2((int64_t{1} << 40) + 1), int64_t{1} << 41);
}

TEST(Pow2, knows_powers_of_two) {
  EXPECT_FALSE(is_power_of_2(0));
  EXPECT_FALSE(is_power_of_2(-4));
  EXPECT_TRUE(is_power_of_2(1));
  EXPECT_TRUE(is_power_of_2(64));
  EXPECT_FALSE(is_power_of_2(12));
}

TEST(Ids, are_ordered_hashable_and_of_different_types) {
  EXPECT_LT(LaneRank{1}, LaneRank{2});
  EXPECT_EQ(SampleId{}, SampleId{0});
  EXPECT_EQ((std::unordered_set<SampleId>{SampleId{1}, SampleId{1}, SampleId{2}}.size()), 2u);
  EXPECT_FALSE((std::is_convertible_v<Rank, LaneRank>));
  EXPECT_FALSE((std::is_convertible_v<int, CpSize>));
}

TEST(Errors, show_outside_text_on_one_line_without_control_characters) {
  const DataError error(std::string("[data] a\nb\tc\rd") + '\0' + "e\x1b[31m\x7f");
  EXPECT_EQ(std::string(error.what()), "[data] a b c d?e?[31m?");
}

}  // namespace
}  // namespace ringfold
