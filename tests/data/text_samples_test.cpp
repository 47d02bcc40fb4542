// Samples that come as text: prompts and responses, chats, plain text, through --tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/temp_file.h"
#include "data/tokenizer_files.h"
#include "ringfold/base/error.h"
#include "ringfold/data/jsonl.h"

namespace ringfold {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Ids = std::vector<int64_t>;

DataOptions qwen() {
  static const auto tokenizer = std::make_shared<const Tokenizer>(Tokenizer::from_dir(tokenizer_dir("qwen")));
  DataOptions options;
  options.tokenizer = tokenizer;
  return options;
}

Sample only(const std::string& line) {
  Dataset dataset = load_jsonl(TempFile(line + "\n").path(), qwen());
  EXPECT_EQ(dataset.samples.size(), 1u);
  return dataset.samples.at(0);
}

std::string error_of(const std::string& line, const DataOptions& options = qwen()) {
  const TempFile file(line + "\n");
  try {
    load_jsonl(file.path(), options);
  } catch (const DataError& error) {
    const std::string message = error.what();
    const std::string head = "[data] " + file.path() + ":1 (sample 0): ";
    EXPECT_THAT(message, StartsWith(head));
    return message.substr(head.size());
  }
  ADD_FAILURE() << "no error for " << line;
  return "";
}

std::string messages_error(const std::string& messages) {
  return error_of("{\"messages\": " + messages + "}");
}

std::string decoded(const Sample& sample) {
  return qwen().tokenizer->decode(sample.tokens);
}

// The stretches of loss tokens, decoded.
std::vector<std::string> loss_texts(const Sample& sample) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    if (!sample.loss_mask[i]) continue;
    if (i == 0 || !sample.loss_mask[i - 1]) texts.emplace_back();
    texts.back() += qwen().tokenizer->decode(std::vector<int64_t>{sample.tokens[i]});
  }
  return texts;
}

TEST(TextSamples, prompt_and_response_are_tokenized_apart) {
  const Sample sample = only(R"({"prompt": "Hello t", "response": "he", "reward": 1, "group": "g"})");
  Ids expected = qwen().tokenizer->encode("Hello t");
  const Ids response = qwen().tokenizer->encode("he");
  expected.insert(expected.end(), response.begin(), response.end());
  EXPECT_EQ(sample.tokens, expected);
  EXPECT_NE(sample.tokens, qwen().tokenizer->encode("Hello the"));
  EXPECT_EQ(sample.response_length, static_cast<int64_t>(response.size()));
  EXPECT_EQ(sample.loss_tokens(), sample.response_length);
  EXPECT_EQ(loss_texts(sample), std::vector<std::string>{"he"});
  EXPECT_EQ(sample.reward, 1.0);
  EXPECT_EQ(sample.group, "g");
}

TEST(TextSamples, a_rendered_chat_may_be_the_prompt) {
  const Sample sample = only(R"({"prompt": "<|im_start|>user\nHello<|im_end|>\n", "response": "a<|im_end|>"})");
  EXPECT_EQ(sample.tokens.front(), qwen().tokenizer->id_of("<|im_start|>"));
  EXPECT_EQ(sample.tokens.back(), qwen().tokenizer->id_of("<|im_end|>"));
  EXPECT_EQ(sample.response_length, 2);
}

TEST(TextSamples, plain_text_is_all_loss_but_the_first_token) {
  const Sample sample = only(R"({"text": "Hello world"})");
  EXPECT_EQ(sample.tokens, qwen().tokenizer->encode("Hello world"));
  EXPECT_EQ(sample.response_length, sample.length() - 1);
  EXPECT_EQ(sample.loss_tokens(), sample.length() - 1);
}

TEST(TextSamples, an_empty_response_has_no_loss_token) {
  const Sample sample = only(R"({"prompt": "Hello", "response": ""})");
  EXPECT_EQ(sample.response_length, 0);
  EXPECT_EQ(sample.loss_tokens(), 0);
}

TEST(TextSamples, masks_and_log_probs_are_per_response_token) {
  const Sample sample = only(R"({"prompt": "12", "response": "345", "loss_mask": [1, 0, 1], "response_length": 3, )"
                             R"("old_log_probs": [-1, -2, -3]})");
  EXPECT_THAT(sample.loss_mask, ElementsAre(0, 0, 1, 0, 1));
  EXPECT_THAT(sample.old_log_probs, ElementsAre(-1, -2, -3));
}

TEST(TextSamples, chats_render_as_the_model_s_own_template) {
  const auto goldens = json_lines(RINGFOLD_SOURCE_DIR "/tests/data/chat_goldens.jsonl");
  ASSERT_GE(goldens.size(), 10u);
  for (const auto& golden : goldens) {
    // From the file's text: the order of keys in tool calls counts.
    const auto chat = nlohmann::ordered_json::parse(golden["chat_json"].get<std::string>());
    const Sample sample = only(chat.dump());
    const auto text = golden["text"].get<std::string>();
    EXPECT_EQ(decoded(sample), text);
    std::vector<std::string> expected;
    const std::string head = "<|im_start|>assistant\n", end = "<|im_end|>";
    for (size_t at = text.find(head); at != std::string::npos; at = text.find(head, at)) {
      at += head.size();
      expected.push_back(text.substr(at, text.find(end, at) + end.size() - at));
    }
    EXPECT_EQ(loss_texts(sample), expected);
    const auto first = std::find(sample.loss_mask.begin(), sample.loss_mask.end(), 1);
    EXPECT_EQ(sample.response_length, sample.loss_mask.end() - first);
  }
}

TEST(TextSamples, turns_that_are_given_have_the_ids_of_the_whole_text_and_answers_begin_anew) {
  const Sample given = only(R"({"messages": [{"role": "user", "content": "\n\nHello"}]})");
  EXPECT_EQ(given.tokens, qwen().tokenizer->encode("<|im_start|>user\n\n\nHello<|im_end|>\n"));
  const Sample written =
      only(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "\nHello"}]})");
  Ids expected = qwen().tokenizer->encode("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  for (const char* text : {"\nHello<|im_end|>", "\n"}) {
    const Ids ids = qwen().tokenizer->encode(text);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(written.tokens, expected);
}

TEST(TextSamples, threads_change_nothing) {
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    const std::string number = std::to_string(i);
    text += i % 3 == 0 ? "{\"prompt\": \"Hello " + number + "\", \"response\": \"the dog " + number + "\"}\n"
                       : "{\"tokens\": [" + number + ", 7]}\n";
    if (i % 1000 == 500) text += "\n{\"tokens\": [" + number + "\n";
  }
  for (const char* suffix : {".jsonl", ".jsonl.gz"}) {
    const TempFile file(text, suffix, suffix != std::string(".jsonl"));
    DataOptions options = qwen();
    options.skip_bad_samples = true;
    options.threads = 1;
    const Dataset one = load_jsonl(file.path(), options);
    EXPECT_EQ(one.samples.size(), 5000u);
    EXPECT_EQ(one.skip_counts.at("broken JSON"), 5);
    options.threads = 4;
    const Dataset four = load_jsonl(file.path(), options);
    EXPECT_EQ(four.digest(), one.digest());
    EXPECT_EQ(four.skip_reasons, one.skip_reasons);
    for (size_t i = 0; i < one.samples.size(); ++i) {
      ASSERT_EQ(four.samples[i].id, one.samples[i].id);
      ASSERT_EQ(four.samples[i].line, one.samples[i].line);
    }
    options.skip_bad_samples = false;
    EXPECT_THAT([&] { load_jsonl(file.path(), options); },
                ::testing::ThrowsMessage<DataError>(HasSubstr(":503 (sample 501): broken JSON")));
  }
}

TEST(TextSamples, a_bad_line_before_the_place_where_a_file_breaks_off_comes_first) {
  std::string text = "{\"tokens\": []}\n";
  for (int i = 0; i < 100'000; ++i) text += "{\"tokens\":[" + std::to_string(i * 7919 % 1000) + "]}\n";
  const TempFile whole(text, ".jsonl.gz", true);
  const TempFile cut(whole.bytes().substr(0, whole.bytes().size() / 2), ".jsonl.gz");
  EXPECT_THAT([&] { load_jsonl(cut.path(), {}); },
              ::testing::ThrowsMessage<DataError>(HasSubstr(":1 (sample 0): empty sample")));
}

TEST(TextSampleErrors, samples) {
  EXPECT_THAT(error_of(R"({"prompt": "", "response": "Hello"})"),
              StartsWith("response starts at token 0: got a response of "));
  EXPECT_EQ(error_of(R"({"prompt": "", "response": ""})"), "empty sample: got 0 tokens, expected at least 1");
  EXPECT_EQ(error_of(R"({"text": ""})"), "empty sample: got 0 tokens, expected at least 1");
  EXPECT_EQ(error_of(R"({"prompt": 5, "response": "a"})"), "wrong type: prompt: got 5, expected a string");
  EXPECT_EQ(error_of(R"({"prompt": "a", "response": ["a"]})"),
            "wrong type: response: got an array of 1, expected a string");
  EXPECT_EQ(error_of(R"({"prompt": "1", "response": "23", "response_length": 3})"),
            "response length: response_length 3, response of 2 tokens. Hint: leave response_length out");
  EXPECT_THAT(error_of(R"({"prompt": "1", "response": "23", "loss_mask": [1]})"),
              StartsWith("mask length: response of 2 tokens, loss_mask of 1 entries"));
  EXPECT_THAT(error_of(R"({"prompt": "1", "response": "23", "old_log_probs": [-1]})"),
              StartsWith("old_log_probs length: response of 2 tokens, old_log_probs of 1 entries"));
  DataOptions options = qwen();
  options.vocab_size = 256;
  EXPECT_THAT(
      error_of(R"({"prompt": "1", "response": "the<|im_end|>"})", options),
      AllOf(StartsWith("id outside the vocabulary: position "), HasSubstr("expected 0 to 255 (vocabulary size 256)")));
  options = qwen();
  options.max_tokens = 3;
  EXPECT_THAT(error_of(R"({"prompt": "12", "response": "34"})", options),
              StartsWith("too long: got 4 tokens, expected at most 3 (--rollout-max-context-len). Hint"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "response": "b", "images": []})"),
              StartsWith("images: key \"images\": vision-language models are not built yet"));
}

TEST(TextSampleErrors, chats) {
  EXPECT_EQ(messages_error("5"), "messages: got 5, expected an array of at least one message");
  EXPECT_EQ(messages_error("[]"), "messages: got no message, expected an array of at least one message");
  EXPECT_EQ(messages_error("[7]"), "messages: message 0: got 7, expected an object");
  EXPECT_EQ(messages_error(R"([{"content": "a"}])"),
            "messages: message 0: role: got none, expected one of system, user, assistant, tool");
  EXPECT_THAT(messages_error(R"([{"role": "human", "content": "a"}])"),
              HasSubstr("role: got \"human\", expected one of"));
  EXPECT_EQ(messages_error(R"([{"role": "user"}])"),
            "messages: message 0: content: got null, expected a string or an array of text parts");
  EXPECT_THAT(messages_error(R"([{"role": "user", "content": 5}])"), HasSubstr("content: got 5, expected a string"));
  EXPECT_THAT(messages_error(R"([{"role": "user", "content": ["a"]}])"),
              HasSubstr("content: got a part \"a\", expected"));
  EXPECT_THAT(messages_error(R"([{"role": "user", "content": [{"type": "audio"}]}])"),
              HasSubstr("a part without \"text\""));
  EXPECT_THAT(messages_error(R"([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}])"),
              HasSubstr("message 1: a system message, expected at most one, as the first"));
  EXPECT_THAT(messages_error(R"([{"role": "user", "contents": "a"}])"),
              HasSubstr("message 0: unknown key \"contents\". Hint: did you mean \"content\"?"));
  EXPECT_THAT(messages_error(R"([{"role": "user", "content": "", "zzzzzzzzzz": 1}])"),
              HasSubstr("Hint: known are role, content"));
  EXPECT_THAT(messages_error(R"([{"role": "assistant", "content": "a", "reasoning_content": "b"}])"),
              HasSubstr("key \"reasoning_content\" is not read. Hint: put <think>...</think> into the content"));
  EXPECT_THAT(messages_error(R"([{"role": "user", "content": "", "tool_calls": []}])"),
              HasSubstr("tool_calls: got some of user, expected them of the assistant"));
  EXPECT_THAT(messages_error(R"([{"role": "assistant", "content": "", "tool_calls": 5}])"),
              HasSubstr("tool_calls: got 5, expected"));
  EXPECT_THAT(messages_error(R"([{"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]}])"),
              HasSubstr("tool_calls: got an object, expected objects with \"name\" and \"arguments\""));
  for (const char* part : {R"({"type": "image", "url": "x"})", R"({"image": "x"})",
                           R"({"type": "image_url", "image_url": {}})", R"({"type": "video"})"}) {
    EXPECT_THAT(
        messages_error(std::string(R"([{"role": "user", "content": [)") + part + "]}]"),
        AllOf(StartsWith("images: message 0: a part with \""), HasSubstr("vision-language models are not built yet")));
  }
  EXPECT_THAT(messages_error(R"([{"role": "user", "content": "a<|im_end|>\n<|im_start|>system"}])"),
              StartsWith("special token in a message: the text spells out <|im_end|>, expected plain text. Hint: "));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user", "content": "a"}], "loss_mask": [0]})"),
              StartsWith("messages: got loss_mask too, which follows from the turns"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user", "content": "a"}], "tools": 5})"),
              StartsWith("tools: got 5, expected an array"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user", "content": "a"}], "tools": ["x"]})"),
              StartsWith("tools: got \"x\", expected objects"));
  DataOptions llama;
  llama.tokenizer = std::make_shared<const Tokenizer>(Tokenizer::from_dir(tokenizer_dir("llama3")));
  EXPECT_THAT(
      error_of(R"({"messages": [{"role": "user", "content": "a"}]})", llama),
      StartsWith(
          "messages: the tokenizer has no <|im_start|>, expected one of the Qwen family. Hint: render the chat"));
}

TEST(TextSampleErrors, a_pattern_that_gives_up_names_the_line) {
  nlohmann::json file = nlohmann::json::parse(text_of(tokenizer_dir("gpt2") + "/tokenizer.json"));
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"}, {"pattern", {{"Regex", "(?:a|aa)+[bc]"}}}, {"behavior", "Isolated"}},
                             {{"type", "ByteLevel"}, {"use_regex", false}}}}};
  DataOptions options;
  options.tokenizer = std::make_shared<const Tokenizer>(Tokenizer::from_json(file.dump()));
  EXPECT_THAT(error_of("{\"text\": \"" + std::string(300, 'a') + "\"}", options),
              StartsWith("text not tokenized: [tokenizer] split pattern: match limit exceeded at byte 0 of 300"));
}

}  // namespace
}  // namespace ringfold
