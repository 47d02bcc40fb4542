// Every row of the data error table: one line with file, line number and sample id, exit code 2, no step made - or,
// with
// --skip-bad-samples, the rest is trained on and the others are counted.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "faults/job.h"

namespace ringfold {
namespace {

using testing::HasSubstr;

struct Row {
  std::string name, line, message;
  Strings flags = {};
};

std::vector<Row> rows() {
  const Strings grpo = {"--objective", "grpo"};
  std::string long_sample = R"({"tokens": [1)";
  for (int t = 1; t < 129; ++t) long_sample += ", 1";
  return {
      {"broken_json", R"({"tokens": [1, 2)", "broken JSON: at column "},
      {"id_above_the_vocabulary", R"({"tokens": [1, 61, 2]})",
       "id outside the vocabulary: position 1: got id 61, expected 0 to 60"},
      {"negative_id", R"({"tokens": [1, 2, -1]})",
       "id outside the vocabulary: position 2: got id -1, expected 0 to 60"},
      {"mask_length", R"({"tokens": [1, 2, 3, 4], "response_length": 3, "loss_mask": [1, 1]})",
       "mask length: response of 3 tokens, loss_mask of 2 entries."},
      {"old_log_probs_length",
       R"({"tokens": [1, 2, 3, 4], "response_length": 3, "reward": 1, "group": 0, "old_log_probs": [-1, -2]})",
       "old_log_probs length: response of 3 tokens, old_log_probs of 2 entries.", grpo},
      {"rollout_log_probs_length",
       R"({"tokens": [1, 2, 3, 4], "response_length": 3, "reward": 1, "group": 0, "rollout_log_probs": [-1]})",
       "rollout_log_probs length: response of 3 tokens, rollout_log_probs of 1 entr", grpo},
      {"ref_log_probs_length",
       R"({"tokens": [1, 2, 3, 4], "response_length": 3, "reward": 1, "group": 0, "ref_log_probs": [-1, -2]})",
       "ref_log_probs length: response of 3 tokens, ref_log_probs of 2 entries.", grpo},
      {"advantages_length", R"({"tokens": [1, 2, 3, 4], "response_length": 3, "advantages": [-1, -2]})",
       "advantages length: response of 3 tokens, advantages of 2 entries.", grpo},
      {"empty_sample", R"({"tokens": []})", "empty sample: got 0 tokens, expected at least 1"},
      {"too_long", long_sample + "]}", "too long: got 129 tokens, expected at most 128 (--rollout-max-context-len)."},
      {"response_at_token_0", R"({"tokens": [1, 2, 3], "response_length": 3})",
       "response starts at token 0: got a response of 3 in a sample of 3 tokens"},
      {"response_longer_than_the_sample", R"({"tokens": [1, 2, 3], "response_length": 4})",
       "response longer than the sample: got response_length 4, expected at most 2"},
      {"images", R"({"tokens": [1, 2, 3], "images": ["a.png"]})",
       "images: key \"images\": vision-language models are not built yet."},
      {"text_without_a_tokenizer", R"({"prompt": "a", "response": "b"})", "text without a tokenizer: got the key"},
      {"no_object", "[1, 2]", "no JSON object: got an array of 2"},
      {"unknown_key", R"({"tokens": [1, 2, 3], "respnse_length": 1})", "unknown key"},
  };
}

class DataRow : public Job {
 protected:
  Strings train(const std::string& file, const Strings& more) const {
    return Strings{RINGFOLD_BINARY} +
           train_flags({"--data", folder_ / file, "--max-tokens-per-gpu", "128", "--log-level", "error"}) + more;
  }
};

class BadData : public DataRow, public testing::WithParamInterface<Row> {};

TEST_P(BadData, ends_the_run_before_the_first_step) {
  const Row& row = GetParam();
  // The blank line counts as a line and not as a sample.
  std::ofstream(folder_ / "bad.jsonl") << R"({"tokens": [1, 2, 3], "advantages": [1, 1]})"
                                       << "\n\n"
                                       << row.line << '\n';
  Process job(folder_, "job", train("bad.jsonl", row.flags), {});
  EXPECT_EQ(job.wait(kHangSeconds), 2) << job.errors();
  const Strings lines = lines_of(job.errors());
  ASSERT_EQ(lines.size(), 1U) << job.errors();
  EXPECT_THAT(lines[0],
              testing::StartsWith("ringfold: error: [data] " + (folder_ / "bad.jsonl").string() + ":3 (sample 1): "));
  EXPECT_THAT(lines[0], HasSubstr(row.message));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "metrics.jsonl"));
}

INSTANTIATE_TEST_SUITE_P(Rows, BadData, testing::ValuesIn(rows()), [](const auto& at) { return at.param.name; });

TEST_F(DataRow, all_bad_samples_are_skipped_counted_and_the_rest_keeps_its_ids) {
  std::ofstream file(folder_ / "mixed.jsonl");
  int bad = 0;
  for (const Row& row : rows()) {
    file << row.line << '\n';
    ++bad;
  }
  for (int good = 0; good < 2; ++good) file << R"({"tokens": [1, 2, 3, 4]})" << '\n';
  file.close();
  Process job(folder_, "job", train("mixed.jsonl", {"--skip-bad-samples", "--max-steps", "1", "--log-level", "info"}),
              {});
  EXPECT_EQ(job.wait(kHangSeconds), 0) << job.errors();
  EXPECT_THAT(job.table_and_errors(), HasSubstr(fmt::format("{} skipped, first: ", bad)));
  const auto record = nlohmann::json::parse(lines_of(text_of(folder_ / "run" / "metrics.jsonl")).at(0));
  EXPECT_EQ(record["samples"], (std::vector<int>{bad, bad + 1}));
}

TEST_F(DataRow, files_that_cannot_be_read_are_named) {
  const auto refusal = [&](const std::string& file) {
    Process job(folder_, "job", train(file, {}), {});
    EXPECT_EQ(job.wait(kHangSeconds), 2) << job.errors();
    EXPECT_EQ(lines_of(job.errors()).size(), 1U) << job.errors();
    return job.errors();
  };
  EXPECT_THAT(refusal("none.jsonl"), HasSubstr("none.jsonl: cannot open: No such file or directory. Hint: "));
  std::ofstream(folder_ / "empty.jsonl").close();
  EXPECT_THAT(refusal("empty.jsonl"), HasSubstr("empty.jsonl: no sample in the file, expected one a line"));
  // The header of a gzip file, and nothing behind it.
  std::ofstream(folder_ / "cut.jsonl.gz", std::ios::binary).write("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
  EXPECT_THAT(refusal("cut.jsonl.gz"), HasSubstr("cut.jsonl.gz:1: cannot read on: the gzip data end too early"));
}

}  // namespace
}  // namespace ringfold
