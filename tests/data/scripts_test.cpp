// scripts/data: what they write, this reader reads. They need Python's tokenizers (.venv) and the reference data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "data/temp_file.h"
#include "ringfold/base/error.h"
#include "ringfold/data/jsonl.h"
#include "ringfold/data/lengths.h"

namespace ringfold {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Ran {
  int code;
  std::string text;  // stdout and stderr
};

Ran run(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  char buffer[4096];
  for (size_t count; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, count);
  return {WEXITSTATUS(pclose(pipe)), text};
}

class DataScripts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(python_)) GTEST_SKIP() << "no " << python_ << ": run scripts/setup.sh";
    const char* shared = std::getenv("RINGFOLD_SHARED_DIR");
    if (!shared || !std::filesystem::exists(std::string(shared) + "/data/tokenizer_qwen3")) {
      GTEST_SKIP() << "no reference data: set RINGFOLD_SHARED_DIR";
    }
    shared_ = std::string(shared) + "/data/";
  }

  Ran script(const std::string& name, const std::string& arguments) const {
    return run(python_ + " " RINGFOLD_SOURCE_DIR "/scripts/data/" + name + " " + arguments);
  }
  std::string tokenizer() const { return " --tokenizer " + shared_ + "tokenizer_qwen3"; }

  const std::string python_ = RINGFOLD_SOURCE_DIR "/.venv/bin/python";
  std::string shared_;
};

TEST_F(DataScripts, tokenizer_gives_the_golden_ids) {
  const Ran ran = run(python_ + " " RINGFOLD_SOURCE_DIR "/tests/data/golden_tokens.py " + shared_ + "tokenizer_qwen3");
  EXPECT_EQ(ran.code, 0) << ran.text;
}

TEST_F(DataScripts, texts_and_messages_become_samples) {
  const TempFile in(
      "{\"text\": \"Hello world\", \"meta\": {\"from\": \"here\"}}\n\n"
      "{\"prompt\": \"Hello\", \"response\": \" world\", \"reward\": 0.5, \"group\": 7}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}, {\"role\": \"assistant\", \"content\": \"world\"},"
      " {\"role\": \"user\", \"content\": \"Hello\"}]}\n");
  const TempFile out("", ".jsonl.gz");
  const Ran ran = script("tokenize_text.py", in.path() + " " + out.path() + tokenizer());
  ASSERT_EQ(ran.code, 0) << ran.text;
  EXPECT_THAT(ran.text, HasSubstr("3 samples"));
  const Dataset data = load_jsonl(out.path(), {.vocab_size = 151936});
  ASSERT_EQ(data.samples.size(), 3u);
  EXPECT_THAT(data.samples[0].tokens, ElementsAre(9707, 1879));
  EXPECT_THAT(data.samples[1].tokens, ElementsAre(9707, 1879));
  EXPECT_EQ(data.samples[1].response_length, 1);
  EXPECT_EQ(data.samples[1].reward, 0.5);
  EXPECT_EQ(data.samples[1].group, "7");
  // <|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nworld<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n
  EXPECT_THAT(data.samples[2].tokens, ElementsAre(151644, 872, 198, 9707, 151645, 198, 151644, 77091, 198, 14615,
                                                  151645, 198, 151644, 872, 198, 9707, 151645, 198));
  EXPECT_THAT(data.samples[2].loss_mask, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0));
}

TEST_F(DataScripts, bad_records_name_their_line_or_are_skipped) {
  const TempFile in(
      "{\"text\": \"Hello\"}\n{\"texts\": \"Hello\"}\n{\"text\": \"a<|im_end|>\"}\n{\"text\": \"\"}\n"
      "{\"prompt\": \"\", \"response\": \"Hello\"}\n{\"messages\": [{\"role\": \"user\"}]}\n");
  const TempFile out("");
  const std::string arguments = in.path() + " " + out.path() + tokenizer();
  const Ran refused = script("tokenize_text.py", arguments);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text, HasSubstr("error: " + in.path() + ":2: got the keys texts, expected text, or prompt and"));
  const Ran skipped = script("tokenize_text.py", arguments + " --skip-bad");
  EXPECT_EQ(skipped.code, 0) << skipped.text;
  EXPECT_THAT(skipped.text, HasSubstr("5 skipped"));
  EXPECT_EQ(load_jsonl(out.path(), {}).samples.size(), 1u);
  EXPECT_THAT(script("tokenize_text.py", arguments + " --skip-bad --allow-special").text, HasSubstr("4 skipped"));
}

TEST_F(DataScripts, math_rollouts_become_groups_with_rewards) {
  const TempFile out("");
  const Ran ran =
      script("math_cot.py", shared_ + "rollouts/math_cot_100x8.jsonl " + out.path() + tokenizer() + " --limit 3");
  ASSERT_EQ(ran.code, 0) << ran.text;
  const Dataset data = load_jsonl(out.path(), {.vocab_size = 151936});
  ASSERT_EQ(data.samples.size(), 24u);
  std::set<std::string> groups;
  for (const Sample& sample : data.samples) {
    groups.insert(*sample.group);
    EXPECT_TRUE(sample.reward == 0.0 || sample.reward == 1.0);
    EXPECT_EQ(sample.tokens.back(), 151645) << "the end of the turn is part of the response";
    EXPECT_EQ(sample.loss_tokens(), sample.response_length);
    EXPECT_EQ(sample.tokens[static_cast<size_t>(sample.response_begin()) - 2], 77091) << "assistant\\n before it";
  }
  EXPECT_EQ(groups.size(), 3u);
}

TEST_F(DataScripts, gym_rollouts_become_samples) {
  const TempFile out("");
  const Ran ran = script("nemo_gym.py", shared_ + "rollouts/nemo_gym_real_rollouts.jsonl.gz " + out.path() +
                                            tokenizer() + " --limit 40 --max-tokens 2000");
  ASSERT_EQ(ran.code, 0) << ran.text;
  const Dataset data = load_jsonl(out.path(), {.vocab_size = 151936});
  EXPECT_GT(data.samples.size(), 10u);
  EXPECT_LE(data.longest(), 2000);
  for (const Sample& sample : data.samples) EXPECT_TRUE(sample.reward && sample.group);
}

TEST_F(DataScripts, length_traces_become_lengths) {
  const TempFile out("", ".txt");
  const std::string trace = shared_ + "length_traces/mooncake_conversation_lengths.csv ";
  const Ran ran = script("mooncake.py", trace + out.path() + " --max-tokens 8192 --limit 100");
  ASSERT_EQ(ran.code, 0) << ran.text;
  const std::vector<int64_t> lengths = load_lengths(out.path());
  ASSERT_EQ(lengths.size(), 100u);
  EXPECT_EQ(lengths[0], 6758 + 500);
  EXPECT_LE(*std::max_element(lengths.begin(), lengths.end()), 8192);
  const Ran azure = script("mooncake.py", shared_ + "length_traces/AzureLLMInferenceTrace_code.csv " + out.path() +
                                              " --columns ContextTokens,GeneratedTokens --limit 2");
  EXPECT_EQ(azure.code, 0) << azure.text;
  EXPECT_THAT(load_lengths(out.path()), ElementsAre(4818, 3188));
  EXPECT_THAT(script("mooncake.py", trace + out.path() + " --columns tokens").text,
              HasSubstr("no column tokens; it has"));
}

}  // namespace
}  // namespace ringfold
