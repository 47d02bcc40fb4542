// Rewards from rules and from programs.
#include "ringfold/rollout/reward.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <memory>

#include "data/tokenizer_files.h"
#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using Ids = std::vector<int64_t>;

RewardRequest request(const Ids& response, const Ids& answer, int64_t id = 0) {
  static const Ids prompt = {1, 2};
  return {id, prompt, response, answer, false};
}

std::vector<double> scores(RewardModel& reward, const std::vector<RewardRequest>& requests) {
  std::vector<double> all;
  for (const RewardRequest& one : requests) all.push_back(reward.score(one));
  return all;
}

TEST(Reward, exact_compares_all_but_stop_tokens) {
  const auto reward = make_exact_reward({9});
  const Ids right = {4, 5, 9}, cut = {4, 5}, wrong = {4, 6, 9}, longer = {4, 5, 5, 9}, none = {9};
  EXPECT_EQ(scores(*reward, {request(right, right), request(cut, right), request(right, cut), request(wrong, right),
                             request(longer, right), request(none, right)}),
            (std::vector<double>{1, 1, 1, 0, 0, 0}));
}

TEST(Reward, the_last_number_of_a_text) {
  EXPECT_EQ(last_number("3 apples and 12 pears"), 12);
  EXPECT_EQ(last_number("It costs $1,234.50."), 1234.5);
  EXPECT_EQ(last_number("#### -7"), -7);
  EXPECT_EQ(last_number("10-7 = x, x=3"), 3);
  EXPECT_EQ(last_number("that is 10-7"), 7);
  EXPECT_EQ(last_number("pi is 3.14, about"), 3.14);
  EXPECT_TRUE(std::isnan(last_number("no number")));
  EXPECT_TRUE(std::isnan(last_number("")));
}

TEST(Reward, numbers_are_read_in_text_and_ids_without_a_token_left_out) {
  const auto tokenizer = std::make_shared<const Tokenizer>(Tokenizer::from_dir(tokenizer_dir("gpt2")));
  const auto reward = make_numeric_reward(tokenizer);
  const Ids right = tokenizer->encode("The answer is 1,234.50."), answer = tokenizer->encode("#### 1234.5");
  const Ids wrong = tokenizer->encode("It is 1234.6"), none = tokenizer->encode("who knows");
  Ids padded = right;
  padded.insert(padded.begin() + 1, tokenizer->vocab_size() + 7);
  EXPECT_EQ(scores(*reward, {request(right, answer), request(wrong, answer), request(none, answer), request(none, none),
                             request(padded, answer)}),
            (std::vector<double>{1, 0, 0, 0, 1}));
}

TEST(Reward, a_program_judges_line_by_line) {
  const auto reward = make_program_reward(
      "python3 -u -c 'import sys, json\n"
      "for line in sys.stdin:\n"
      "  r = json.loads(line)\n"
      "  print(json.dumps({\"reward\": r[\"id\"] + len(r[\"response_tokens\"]) / 4}))'",
      nullptr, 20);
  const Ids one = {1}, two = {1, 2};
  EXPECT_EQ(scores(*reward, {request(one, two, 3), request(two, two, 4)}), (std::vector<double>{3.25, 4.5}));
  EXPECT_EQ(scores(*reward, {request(two, two, 5)}), (std::vector<double>{5.5}));
}

std::string failure(const std::string& command, double timeout = 20, const Ids& answer = {1}) {
  const Ids one = {1};
  try {
    make_program_reward(command, nullptr, timeout)->score(request(one, answer, 7));
  } catch (const RunError& error) {
    return error.what();
  }
  return "";
}

TEST(Reward, a_program_that_fails_is_named_with_what_it_did) {
  using ::testing::HasSubstr;
  EXPECT_THAT(failure("exit 3"), HasSubstr("[rollout] --rm-program 'exit 3': it ended with code 3 before it had"));
  EXPECT_THAT(failure("read -r line; kill -9 $$"), HasSubstr("it ended by signal 9 before it had answered"));
  EXPECT_THAT(failure("exec >&- <&-; sleep 60"), HasSubstr("it closed its output before it had answered"));
  EXPECT_THAT(failure("read -r line; echo hello; cat > /dev/null"),
              HasSubstr("prompt 7: got 'hello', expected a line such as {\"reward\": 1}"));
  EXPECT_THAT(failure("read -r line; echo '{\"reward\": \"x\"}'; cat > /dev/null"),
              HasSubstr("expected a line such as"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(failure("sleep 60", 0.3), HasSubstr("no answer within 0.3 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_THAT(failure("echo ready; cat > /dev/null"), HasSubstr("got 'ready'"));
  EXPECT_THAT(failure("/no/such/program"), HasSubstr("it ended with code 127 before it had answered"));
  EXPECT_THAT(failure("read -r line; echo '{\"reward\": NaN}'; cat > /dev/null"),
              HasSubstr("got '{\"reward\": NaN}', expected"));
  EXPECT_THAT(failure("read -r line; echo '{\"reward\": 1e999}'; cat > /dev/null"),
              HasSubstr("expected a line such as"));
  EXPECT_THAT(failure("read -r line; yes | tr -d '\\n'"), HasSubstr("got 'yyyy"));  // no end of a line
}

// Lines that no socket's buffer holds.
TEST(Reward, a_program_that_does_not_read_or_writes_before_it_has_read_holds_nobody_up) {
  using ::testing::HasSubstr;
  const Ids one = {1}, many(200000, 123456);
  EXPECT_THAT(failure("sleep 60", 0.3, many), HasSubstr("it did not read its line within 0.3 s"));
  EXPECT_THAT(failure("dd bs=1 count=1 of=/dev/null status=none; yes", 20, many), HasSubstr("got 'y' unasked"));
  EXPECT_THAT(failure("dd bs=1 count=1 of=/dev/null status=none; exit 3", 20, many), HasSubstr("before it had"));
  const auto reward = make_program_reward(
      "dd bs=1 count=1 of=/dev/null status=none; head -c 900000 /dev/zero | tr '\\0' ' '; head -n 1 > /dev/null; "
      "echo '{\"reward\": 2}'; cat > /dev/null",
      nullptr, 20);
  EXPECT_EQ(reward->score(request(one, many)), 2);
}

TEST(Reward, an_answer_too_many_is_not_taken_for_the_next_one) {
  const Ids one = {1};
  const auto reward =
      make_program_reward("while read -r line; do printf '{\"reward\": 1}\\n{\"reward\": 2}\\n'; done", nullptr, 20);
  std::string message;
  try {
    for (int i = 0; i < 100; ++i) reward->score(request(one, one));
  } catch (const RunError& error) {
    message = error.what();
  }
  EXPECT_THAT(message, ::testing::HasSubstr("' unasked, expected one line for each that it is given"));
}

TEST(Reward, a_program_that_does_not_leave_is_ended) {
  const auto begin = std::chrono::steady_clock::now();
  const Ids one = {1};
  {
    const auto reward =
        make_program_reward("trap '' TERM; read -r line; echo '{\"reward\": 1}'; sleep 60", nullptr, 20);
    EXPECT_EQ(scores(*reward, {request(one, one)}), (std::vector<double>{1}));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace ringfold
