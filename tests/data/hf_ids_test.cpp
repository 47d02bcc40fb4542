// The same ids as Hugging Face's `tokenizers`, on the real Qwen3 tokenizer: needs the reference data and .venv.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "data/temp_file.h"
#include "data/tokenizer_files.h"

namespace ringfold {
namespace {

class HuggingFaceIds : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* shared = std::getenv("RINGFOLD_SHARED_DIR");
    if (!shared || !std::filesystem::exists(std::string(shared) + "/data/tokenizer_qwen3")) {
      GTEST_SKIP() << "no reference data: set RINGFOLD_SHARED_DIR";
    }
    data_ = std::string(shared) + "/data/";
  }

  // What tests/data/hf_ids.py writes; nothing where Python or its module is missing.
  std::vector<nlohmann::json> hugging_face(const std::string& folder, const std::string& arguments) const {
    const std::string python = RINGFOLD_SOURCE_DIR "/.venv/bin/python";
    if (std::system((python + " -c 'import tokenizers' >/dev/null 2>&1").c_str()) != 0) return {};
    const TempFile out("");
    const std::string script = python + " " RINGFOLD_SOURCE_DIR "/tests/data/hf_ids.py ";
    EXPECT_EQ(std::system((script + folder + " " + out.path() + " " + arguments).c_str()), 0);
    return json_lines(out.path());
  }

  std::string data_;
};

TEST_F(HuggingFaceIds, golden_strings_of_qwen3) {
  const auto records = json_lines(data_ + "tokenizer_qwen3/golden_tokenization.jsonl");
  EXPECT_EQ(records.size(), 16u);
  expect_ids(Tokenizer::from_dir(data_ + "tokenizer_qwen3"), records);
}

TEST_F(HuggingFaceIds, ten_thousand_strings_and_the_texts_of_the_reference_data) {
  std::string files = "10000";
  for (const char* file :
       {"text/gsm8k_test.jsonl", "text/arena_hard_v2_o3mini.jsonl.gz", "rollouts/math_cot_100x8.jsonl",
        "rollouts/nemo_gym_real_rollouts.jsonl.gz", "rollouts/taubench_gpt4o_airline.json.gz"}) {
    files += " " + data_ + file;
  }
  const auto records = hugging_face(data_ + "tokenizer_qwen3", files);
  if (records.empty()) GTEST_SKIP() << "no tokenizers in .venv: run scripts/setup.sh";
  EXPECT_GT(records.size(), 10000u);
  expect_ids(Tokenizer::from_dir(data_ + "tokenizer_qwen3"), records);
}

TEST_F(HuggingFaceIds, ten_thousand_strings_with_the_small_tokenizers) {
  for (const char* name : {"llama3", "gpt2"}) {
    const auto records = hugging_face(tokenizer_dir(name), "10000");
    if (records.empty()) GTEST_SKIP() << "no tokenizers in .venv: run scripts/setup.sh";
    EXPECT_EQ(records.size(), 10000u);
    expect_ids(Tokenizer::from_dir(tokenizer_dir(name)), records);
  }
}

}  // namespace
}  // namespace ringfold
