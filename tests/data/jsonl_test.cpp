#include "ringfold/data/jsonl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/temp_file.h"
#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Dataset load(const std::string& text, const DataOptions& options = {}) {
  return load_jsonl(TempFile(text).path(), options);
}

Sample only(const std::string& line) {
  Dataset dataset = load(line + "\n");
  EXPECT_EQ(dataset.samples.size(), 1u);
  return dataset.samples.at(0);
}

// The message without its "[data] FILE" head.
std::string error_of(const std::string& text, const DataOptions& options = {}) {
  const TempFile file(text);
  try {
    load_jsonl(file.path(), options);
  } catch (const DataError& error) {
    const std::string message = error.what();
    EXPECT_THAT(message, StartsWith("[data] " + file.path()));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    EXPECT_EQ(error.exit_code(), ExitCode::kUsage);
    return message.substr(7 + file.path().size());
  }
  ADD_FAILURE() << "no error for " << text.substr(0, 200);
  return "";
}

TEST(Jsonl, every_token_but_the_first_is_a_loss_token_without_a_mask) {
  const Sample sample = only(R"({"tokens": [5, 6, 7]})");
  EXPECT_THAT(sample.tokens, ElementsAre(5, 6, 7));
  EXPECT_EQ(sample.response_length, 2);
  EXPECT_THAT(sample.loss_mask, ElementsAre(0, 1, 1));
  EXPECT_EQ(sample.loss_tokens(), 2);
  EXPECT_EQ(sample.response_begin(), 1);
  EXPECT_EQ(sample.line, 1);
  EXPECT_FALSE(sample.reward.has_value());
  EXPECT_FALSE(sample.group.has_value());
}

TEST(Jsonl, response_length_marks_the_last_tokens) {
  EXPECT_THAT(only(R"({"tokens": [5, 6, 7, 8], "response_length": 2})").loss_mask, ElementsAre(0, 0, 1, 1));
  const Sample none = only(R"({"tokens": [5, 6], "response_length": 0})");
  EXPECT_EQ(none.response_length, 0);
  EXPECT_EQ(none.loss_tokens(), 0);
}

TEST(Jsonl, a_sample_of_one_token_has_no_loss_token) {
  for (const char* line : {R"({"tokens": [5]})", R"({"tokens": [5], "response_length": 0})",
                           R"({"tokens": [5], "loss_mask": [0]})", R"({"tokens": [5], "loss_mask": []})"}) {
    const Sample sample = only(line);
    EXPECT_EQ(sample.response_length, 0) << line;
    EXPECT_EQ(sample.loss_tokens(), 0) << line;
    EXPECT_EQ(sample.loss_mask.size(), 1u) << line;
  }
}

TEST(Jsonl, mask_with_response_length_is_of_the_response) {
  const Sample sample = only(R"({"tokens": [1, 2, 3, 4], "response_length": 3, "loss_mask": [1, 0, true]})");
  EXPECT_THAT(sample.loss_mask, ElementsAre(0, 1, 0, 1));
  EXPECT_EQ(sample.response_length, 3);
}

TEST(Jsonl, mask_alone_is_of_the_sample_or_says_how_long_the_response_is) {
  const Sample full = only(R"({"tokens": [1, 2, 3, 4], "loss_mask": [0, 0, 1, 1]})");
  EXPECT_EQ(full.response_length, 3);
  EXPECT_THAT(full.loss_mask, ElementsAre(0, 0, 1, 1));
  const Sample tail = only(R"({"tokens": [1, 2, 3, 4], "loss_mask": [1, false]})");
  EXPECT_EQ(tail.response_length, 2);
  EXPECT_THAT(tail.loss_mask, ElementsAre(0, 0, 1, 0));
}

TEST(Jsonl, rl_fields_are_read_per_response_token) {
  const Sample sample =
      only(R"({"tokens": [1, 2, 3], "response_length": 2, "reward": 1, "group": 17, "old_log_probs": [-1, -2.5], )"
           R"("rollout_log_probs": [-3, -4], "ref_log_probs": [-5, -6], "advantages": [0.5, -0.5], )"
           R"("meta": {"any": [null, {"thing": "x"}]}})");
  EXPECT_EQ(sample.reward, 1.0);
  EXPECT_EQ(sample.group, "17");
  EXPECT_THAT(sample.old_log_probs, ElementsAre(-1, -2.5));
  EXPECT_THAT(sample.rollout_log_probs, ElementsAre(-3, -4));
  EXPECT_THAT(sample.ref_log_probs, ElementsAre(-5, -6));
  EXPECT_THAT(sample.advantages, ElementsAre(0.5, -0.5));
  EXPECT_EQ(only(R"({"tokens": [1], "group": "prompt 4"})").group, "prompt 4");
}

TEST(Jsonl, ids_count_non_blank_lines_and_survive_skipping) {
  DataOptions skip;
  skip.skip_bad_samples = true;
  const Dataset dataset = load("\n{\"tokens\":[1]}\n  \t\n{\"tokens\":[]}\n\n{\"tokens\":[2]}", skip);
  ASSERT_EQ(dataset.samples.size(), 2u);
  EXPECT_EQ(dataset.samples[0].id, SampleId(0));
  EXPECT_EQ(dataset.samples[0].line, 2);
  EXPECT_EQ(dataset.samples[1].id, SampleId(2));
  EXPECT_EQ(dataset.samples[1].line, 6);
  EXPECT_EQ(dataset.lines, 3);
}

TEST(Jsonl, crlf_byte_order_mark_and_missing_last_newline_are_fine) {
  const Dataset dataset = load("\xEF\xBB\xBF{\"tokens\":[1]}\r\n\r\n{\"tokens\":[2]}\r");
  ASSERT_EQ(dataset.samples.size(), 2u);
  EXPECT_EQ(dataset.samples[1].id, SampleId(1));
  EXPECT_EQ(dataset.samples[1].line, 3);
}

TEST(Jsonl, totals_and_digest_follow_the_content) {
  const std::string text = "{\"tokens\":[1,2,3]}\n{\"tokens\":[4]}\n";
  const Dataset dataset = load(text);
  EXPECT_EQ(dataset.total_tokens(), 4);
  EXPECT_EQ(dataset.longest(), 3);
  EXPECT_EQ(dataset.digest(), load("\n" + text).digest());
  EXPECT_NE(dataset.digest(), load("{\"tokens\":[4]}\n{\"tokens\":[1,2,3]}\n").digest());
  EXPECT_NE(dataset.digest(), load("{\"tokens\":[1,2,3],\"loss_mask\":[0,1,0]}\n{\"tokens\":[4]}\n").digest());
  EXPECT_NE(dataset.digest(), load("{\"tokens\":[1,2,3],\"reward\":0}\n{\"tokens\":[4]}\n").digest());
}

TEST(Jsonl, gzip_is_read_and_a_truncated_file_is_refused) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "{\"tokens\":[" + std::to_string(i * 7919 % 1000) + "]}\n";
  const TempFile good(text, ".jsonl.gz", true);
  EXPECT_EQ(load_jsonl(good.path(), {}).samples.size(), 3000u);

  DataOptions skip;
  skip.skip_bad_samples = true;
  for (size_t cut : {size_t{4}, good.bytes().size() / 2, good.bytes().size() - 10}) {
    const TempFile bad(good.bytes().substr(0, good.bytes().size() - cut), ".jsonl.gz");
    try {
      load_jsonl(bad.path(), skip);
      ADD_FAILURE() << "no error with " << cut << " bytes cut";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(bad.path() + ":"), HasSubstr("the gzip data end too early")));
    }
  }
  std::string damaged_bytes = good.bytes();
  damaged_bytes[damaged_bytes.size() / 2] ^= 0x55;
  const TempFile damaged(damaged_bytes, ".jsonl.gz");
  EXPECT_THROW(load_jsonl(damaged.path(), {}), DataError);
}

TEST(JsonlErrors, case_D1_id_outside_the_vocabulary) {
  DataOptions options;
  options.vocab_size = 512;
  const std::string head = "{\"tokens\":[1]}\n{\"tokens\":[511]}\n{\"tokens\":[0]}\n";
  EXPECT_THAT(error_of(head + "{\"tokens\":[1,512]}\n", options),
              StartsWith(":4 (sample 3): id outside the vocabulary: position 1: got id 512, expected 0 to 511 "
                         "(vocabulary size 512). Hint: "));
  EXPECT_THAT(error_of(head + "{\"tokens\":[-1]}\n", options),
              AllOf(HasSubstr("(sample 3)"), HasSubstr("position 0: got id -1"), HasSubstr("512")));
  EXPECT_THAT(error_of("{\"tokens\":[-1]}\n"), HasSubstr("position 0: got id -1, expected an id >= 0"));
  EXPECT_THAT(error_of("{\"tokens\":[18446744073709551615]}\n"), HasSubstr("got id 18446744073709551615"));
}

TEST(JsonlErrors, case_D2_line_cut_in_half_is_named_or_skipped) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += i == 4 ? "{\"tokens\":[1, 2\n" : "{\"tokens\":[1,2]}\n";
  EXPECT_THAT(error_of(text), StartsWith(":5 (sample 4): broken JSON: at column "));
  DataOptions skip;
  skip.skip_bad_samples = true;
  const Dataset dataset = load(text, skip);
  EXPECT_EQ(dataset.samples.size(), 7u);
  EXPECT_THAT(skip_summary(dataset), AllOf(StartsWith("1 skipped of 8 samples (1 broken JSON). First: "),
                                           HasSubstr(":5 (sample 4): broken JSON")));
  EXPECT_EQ(skip_summary(load("{\"tokens\":[1]}\n", skip)), "");
}

TEST(JsonlErrors, case_D3_mask_and_log_prob_lengths_name_both_numbers) {
  const std::string head = R"({"tokens": [1,2,3,4,5,6,7,8,9,10,11,12], "response_length": 10, )";
  const std::string nine = "[1,1,1,1,1,1,1,1,1]";
  EXPECT_THAT(error_of(head + "\"loss_mask\": " + nine + "}"),
              StartsWith(":1 (sample 0): mask length: response of 10 tokens, loss_mask of 9 entries"));
  for (const char* key : {"old_log_probs", "rollout_log_probs", "ref_log_probs", "advantages"}) {
    EXPECT_THAT(
        error_of(head + "\"" + key + "\": " + nine + "}"),
        StartsWith(std::string(":1 (sample 0): ") + key + " length: response of 10 tokens, " + key + " of 9 entries"));
  }
  EXPECT_THAT(error_of(R"({"tokens": [1,2], "loss_mask": [0,1,1]})"),
              HasSubstr("mask length: sample of 2 tokens, loss_mask of 3 entries"));
}

TEST(JsonlErrors, response_that_starts_at_token_0_or_is_longer_than_the_sample) {
  EXPECT_THAT(error_of(R"({"tokens": [1,2], "response_length": 2})"),
              HasSubstr("response starts at token 0: got a response of 2 in a sample of 2 tokens"));
  EXPECT_THAT(error_of(R"({"tokens": [1,2], "loss_mask": [1,1]})"), HasSubstr("response starts at token 0"));
  EXPECT_THAT(error_of(R"({"tokens": [1], "response_length": 1})"), HasSubstr("response starts at token 0"));
  EXPECT_THAT(error_of(R"({"tokens": [1,2], "response_length": 3})"),
              HasSubstr("response longer than the sample: got response_length 3, expected at most 1 (2 tokens)"));
}

TEST(JsonlErrors, too_long_names_sample_length_and_limit) {
  DataOptions options;
  options.max_tokens = 3;
  EXPECT_THAT(
      error_of("{\"tokens\":[1,2,3]}\n{\"tokens\":[1,2,3,4]}\n", options),
      StartsWith(":2 (sample 1): too long: got 4 tokens, expected at most 3 (--rollout-max-context-len). Hint"));
}

TEST(JsonlErrors, wrong_types_are_refused_by_value) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([1, 2])", "no JSON object: got an array of 2"},
      {R"(7)", "no JSON object: got 7"},
      {R"({})", "no tokens: key \"tokens\" is missing"},
      {R"({"tokens": []})", "empty sample: got 0 tokens, expected at least 1"},
      {R"({"tokens": "1 2"})", "tokens: got \"1 2\", expected an array"},
      {R"({"tokens": [1, 2.0]})", "tokens, position 1: got 2.0, expected a token id"},
      {R"({"tokens": [true]})", "tokens, position 0: got true, expected a token id"},
      {R"({"tokens": ["3"]})", "tokens, position 0: got \"3\", expected a token id"},
      {R"({"tokens": [[3]]})", "tokens, position 0: got an array of 1, expected a token id"},
      {R"({"tokens": [1], "response_length": -1})", "response_length: got -1, expected an integer >= 0"},
      {R"({"tokens": [1], "response_length": 1.5})", "response_length: got 1.5, expected an integer >= 0"},
      {R"({"tokens": [1], "response_length": 99999999999999999999})", "response_length: got 1e+20, expected"},
      {R"({"tokens": [1, 2], "loss_mask": [2]})", "loss_mask, entry 0: got 2, expected 0 or 1"},
      {R"({"tokens": [1, 2], "loss_mask": [0.5]})", "loss_mask, entry 0: got 0.5, expected 0 or 1"},
      {R"({"tokens": [1, 2], "loss_mask": ["1"]})", "loss_mask, entry 0: got \"1\", expected 0 or 1"},
      {R"({"tokens": [1], "reward": "good"})", "reward: got \"good\", expected a number"},
      {R"({"tokens": [1], "reward": null})", "reward: got null, expected a number"},
      {R"({"tokens": [1], "reward": true})", "reward: got true, expected a number"},
      {R"({"tokens": [1], "reward": 1e300})", "number too large: reward: got 1e+300, expected a 32-bit float"},
      {R"({"tokens": [1, 2], "old_log_probs": ["NaN"]})", "old_log_probs, entry 0: got \"NaN\", expected a number"},
      {R"({"tokens": [1, 2], "old_log_probs": -1.5})", "old_log_probs: got -1.5, expected an array"},
      {R"({"tokens": [1], "group": 1.5})", "group: got 1.5, expected a string or an integer"},
  };
  for (const auto& [line, message] : cases) EXPECT_THAT(error_of(line), HasSubstr(message)) << line;
}

TEST(JsonlErrors, what_is_no_json_says_so_in_one_line) {
  EXPECT_THAT(error_of("{\"tokens\": [NaN]}"),
              AllOf(HasSubstr("broken JSON"), HasSubstr("NaN and Infinity are not JSON")));
  EXPECT_THAT(error_of("{\"tokens\": [1], \"reward\": Infinity}"), HasSubstr("NaN and Infinity are not JSON"));
  EXPECT_THAT(error_of("{\"tokens\": [1], \"reward\": 1e999}"), HasSubstr("broken JSON: at number overflow"));
  EXPECT_THAT(error_of("{\"tokens\": [1]} {\"tokens\": [1]}"), HasSubstr("broken JSON"));
  EXPECT_THAT(error_of("{\"meta\": \"\x01\"}"), HasSubstr("broken JSON"));
  EXPECT_THAT(error_of(std::string("\0\0\0\0", 4)), HasSubstr("broken JSON"));
}

TEST(JsonlErrors, deep_nesting_is_refused_without_being_built) {
  EXPECT_THAT(error_of("{\"meta\": " + std::string(2000000, '[')), HasSubstr("nested too deep: more than 32 levels"));
  EXPECT_THAT(error_of(std::string(2000000, '{')), HasSubstr("broken JSON"));
}

TEST(JsonlErrors, unknown_keys_name_the_nearest_known_one) {
  EXPECT_THAT(error_of(R"({"tokens": [1], "loss_masks": [0]})"),
              HasSubstr("unknown key: \"loss_masks\". Hint: did you mean \"loss_mask\"?"));
  EXPECT_THAT(error_of(R"({"token": [1]})"), HasSubstr("did you mean \"tokens\"?"));
  EXPECT_THAT(error_of(R"({"tokens": [1], "zzzzzzzzzzzz": 1})"),
              HasSubstr("Hint: known are tokens, prompt, response,"));
}

TEST(JsonlErrors, text_without_a_tokenizer_and_images_are_refused_by_name) {
  const std::pair<const char*, const char*> cases[] = {{"prompt", R"({"prompt": "a", "response": "b"})"},
                                                       {"messages", R"({"messages": []})"},
                                                       {"text", R"({"text": "hello"})"}};
  for (const auto& [key, line] : cases) {
    EXPECT_THAT(error_of(line),
                HasSubstr(std::string("text without a tokenizer: got the key \"") + key +
                          "\", expected token ids. Hint: give --tokenizer DIR, the model's Hugging Face "
                          "folder with tokenizer.json, or vocab.json and merges.txt"));
  }
  EXPECT_THAT(error_of(R"({"tokens": [1], "images": ["a.png"]})"),
              HasSubstr("key \"images\": vision-language models are not built yet"));
}

TEST(JsonlErrors, a_line_is_one_sample_of_one_kind) {
  EXPECT_THAT(error_of(R"({"tokens": [1], "messages": []})"),
              HasSubstr("two samples in one: got the keys tokens and messages, expected one of them"));
  EXPECT_THAT(error_of(R"({"prompt": "a"})"),
              HasSubstr("half a sample: got \"prompt\" without \"response\", expected both"));
  EXPECT_THAT(error_of(R"({"response": "a"})"), HasSubstr("half a sample: got \"response\" without \"prompt\""));
  EXPECT_THAT(error_of(R"({"tokens": [1], "tools": []})"),
              HasSubstr("half a sample: got \"tools\" without \"messages\""));
}

TEST(JsonlErrors, invalid_utf8_names_byte_and_offset) {
  EXPECT_THAT(error_of("{\"tokens\":[1]}\n{\"meta\": \"\xFF\"}"),
              StartsWith(":2 (sample 1): invalid UTF-8: byte 0xFF at offset 10 of the line. Hint: "));
  EXPECT_THAT(error_of("{\"text\": \"\\ud800\"}"), HasSubstr("broken JSON"));
}

TEST(JsonlErrors, a_key_given_twice_is_refused) {
  EXPECT_THAT(error_of(R"({"tokens": [1], "tokens": [2]})"), HasSubstr("key given twice: got a second \"tokens\""));
  EXPECT_NO_THROW(only(R"({"tokens": [1], "meta": {"a": 1, "a": 2}})"));
}

TEST(JsonlErrors, files_without_samples) {
  EXPECT_THAT(error_of(""), HasSubstr("no sample in the file"));
  EXPECT_THAT(error_of("\n \n\r\n"), HasSubstr("no sample in the file"));
  DataOptions skip;
  skip.skip_bad_samples = true;
  EXPECT_THAT(error_of("{\"tokens\":[]}\n{\"token\":[1]}\n", skip),
              AllOf(HasSubstr("no sample left: 2 skipped of 2 samples (1 empty sample, 1 unknown key). First: "),
                    HasSubstr(":1 (sample 0): empty sample")));
  try {
    load_jsonl("/nowhere/data.jsonl", skip);
    ADD_FAILURE() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), StartsWith("[data] /nowhere/data.jsonl: cannot open: No such file or directory. Hint: "));
  }
  EXPECT_THAT([&] { load_jsonl(::testing::TempDir(), skip); },
              ::testing::ThrowsMessage<DataError>(HasSubstr("cannot read on: Is a directory")));
}

TEST(JsonlErrors, a_line_above_the_bound_is_refused_or_skipped) {
  DataOptions options;
  options.max_line_bytes = 64;
  const std::string text = "{\"tokens\":[1]}\n" + std::string(100000, '1') + "\n{\"tokens\":[2]}\n";
  EXPECT_THAT(error_of(text, options), StartsWith(":2 (sample 1): line too long: got more than 64 bytes"));
  options.skip_bad_samples = true;
  const Dataset dataset = load(text, options);
  ASSERT_EQ(dataset.samples.size(), 2u);
  EXPECT_EQ(dataset.samples[1].tokens[0], 2);
  EXPECT_EQ(dataset.samples[1].line, 3);
}

}  // namespace
}  // namespace ringfold
