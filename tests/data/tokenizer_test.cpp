#include "ringfold/data/tokenizer.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <random>
#include <thread>

#include "data/tokenizer_files.h"
#include "ringfold/base/error.h"
#include "ringfold/data/bpe.h"

namespace ringfold {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const json& gpt2() {
  static const json file = json::parse(text_of(tokenizer_dir("gpt2") + "/tokenizer.json"));
  return file;
}

// The message of a tokenizer.json, without its head.
std::string error_of(const std::string& text) {
  try {
    Tokenizer::from_json(text, "t.json");
  } catch (const DataError& error) {
    const std::string message = error.what();
    EXPECT_THAT(message, StartsWith("[tokenizer] t.json: "));
    EXPECT_EQ(error.exit_code(), ExitCode::kUsage);
    return message.substr(20);
  }
  ADD_FAILURE() << "no error";
  return "";
}

// ... of GPT-2's file with one value replaced.
std::string error_with(const std::string& pointer, const json& value) {
  json changed = gpt2();
  changed[json::json_pointer(pointer)] = value;
  return error_of(changed.dump());
}

TEST(Tokenizer, ids_are_those_of_hugging_face) {
  for (const char* name : {"qwen", "llama3", "gpt2"}) {
    SCOPED_TRACE(name);
    const auto records = json_lines(tokenizer_dir(name) + "/golden.jsonl");
    EXPECT_GT(records.size(), 50u);
    expect_ids(Tokenizer::from_dir(tokenizer_dir(name)), records);
  }
}

TEST(Tokenizer, vocab_and_merges_read_as_the_same_tokenizer_json) {
  json file = gpt2();
  const json vocab = json::parse(text_of(tokenizer_dir("qwen") + "/vocab.json"));
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = json::array();
  std::istringstream merges(text_of(tokenizer_dir("qwen") + "/merges.txt"));
  for (std::string line; std::getline(merges, line);) {
    if (!line.starts_with("#version")) file["model"]["merges"].push_back(line);
  }
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  const char* pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const json config = json::parse(text_of(tokenizer_dir("qwen") + "/tokenizer_config.json"));
  file["added_tokens"] = json::array();
  for (const auto& [id, token] : config["added_tokens_decoder"].items()) {
    file["added_tokens"].push_back(token);
    file["added_tokens"].back()["id"] = std::stoi(id);
  }
  expect_ids(Tokenizer::from_json(file.dump()), json_lines(tokenizer_dir("qwen") + "/golden.jsonl"));
}

TEST(Tokenizer, a_config_without_added_tokens_and_none_at_all_are_fine) {
  const std::string vocab = text_of(tokenizer_dir("qwen") + "/vocab.json");
  const std::string merges = text_of(tokenizer_dir("qwen") + "/merges.txt");
  const auto ids = Tokenizer::from_dir(tokenizer_dir("qwen")).encode("Hello 12 e\u0301");
  EXPECT_EQ(Tokenizer::from_vocab(vocab, merges, "").encode("Hello 12 e\u0301"), ids);
  EXPECT_EQ(Tokenizer::from_vocab(vocab, merges, "{\"tokenizer_class\": null}").encode("Hello 12 \u00e9"), ids);
  // GPT-2 does not normalize.
  const Tokenizer gpt2_kind = Tokenizer::from_vocab(vocab, merges, "{\"tokenizer_class\": \"GPT2Tokenizer\"}");
  EXPECT_EQ(gpt2_kind.decode(gpt2_kind.encode("e\u0301 12")), "e\u0301 12");
  const Tokenizer marks = Tokenizer::from_vocab(vocab, merges, R"({"pretokenize_regex": "\\p{M}|\\P{M}+"})");
  EXPECT_EQ(marks.decode(marks.encode("q\u0301a")), "q\u0301a");
}

TEST(Tokenizer, decode_gives_the_bytes_and_refuses_unknown_ids) {
  const Tokenizer tokenizer = Tokenizer::from_dir(tokenizer_dir("qwen"));
  const auto ids = tokenizer.encode("\u4f60<|im_end|>");
  EXPECT_EQ(tokenizer.decode(ids), "\u4f60<|im_end|>");
  EXPECT_EQ(tokenizer.decode({}), "");
  const int64_t end = tokenizer.vocab_size();
  EXPECT_EQ(tokenizer.id_of("<|im_end|>"), ids.back());
  EXPECT_EQ(tokenizer.id_of("<|nothing|>"), std::nullopt);
  for (const int64_t id : {end, int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_THAT([&] { tokenizer.decode(std::vector<int64_t>{id}); },
                ::testing::ThrowsMessage<DataError>(
                    StartsWith("[tokenizer] id " + std::to_string(id) + ": no token has it, expected 0 to ")));
  }
}

TEST(Tokenizer, special_tokens_are_found_in_text) {
  const Tokenizer tokenizer = Tokenizer::from_dir(tokenizer_dir("qwen"));
  EXPECT_EQ(tokenizer.special_in("a<|im_end|>b<|im_start|>"), "<|im_end|>");
  EXPECT_EQ(tokenizer.special_in("<think></think> <|im_en <|im_end|"), "");
}

TEST(Tokenizer, invalid_utf8_names_the_byte) {
  const Tokenizer tokenizer = Tokenizer::from_dir(tokenizer_dir("qwen"));
  EXPECT_THAT([&] { tokenizer.encode("abc\xFFz"); },
              ::testing::ThrowsMessage<DataError>("[tokenizer] invalid UTF-8 at byte 3"));
}

TEST(Tokenizer, threads_share_one_and_agree) {
  const Tokenizer tokenizer = Tokenizer::from_dir(tokenizer_dir("llama3"));
  const auto records = json_lines(tokenizer_dir("llama3") + "/golden.jsonl");
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { expect_ids(tokenizer, records); });
}

TEST(Tokenizer, long_runs_end_in_time) {
  const Tokenizer tokenizer = Tokenizer::from_dir(tokenizer_dir("qwen"));
  for (const std::string unit : {" ", "a", "=", "\n", "7", "the", "<|im_end|", "e\u0301", "a\u0301\u0316", "\u4f60"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    text += "x";
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), tokenizer.normalized(text)) << unit;
  }
}

TEST(Tokenizer, words_too_many_for_the_cache_keep_their_ids) {
  const Tokenizer tokenizer = Tokenizer::from_dir(tokenizer_dir("gpt2"));
  Tokenizer::Workspace workspace(tokenizer);
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += " " + std::to_string(i) + "x";
  std::vector<int64_t> first, second;
  tokenizer.encode(text, workspace, first);
  tokenizer.encode(text, workspace, second);
  EXPECT_EQ(first, second);
  EXPECT_EQ(tokenizer.decode(first), text);
}

// Merges by the definition: again and again the leftmost pair of the lowest rank.
std::vector<int64_t> merge_slowly(const std::string& word, const std::vector<Bpe::Merge>& merges) {
  std::vector<int64_t> ids(word.begin(), word.end());
  while (true) {
    size_t best_rank = merges.size(), best_at = 0;
    for (size_t at = 0; at + 1 < ids.size(); ++at) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left == ids[at] && merges[rank].right == ids[at + 1]) best_rank = rank, best_at = at;
      }
    }
    if (best_rank == merges.size()) return ids;
    ids[best_at] = merges[best_rank].merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(Bpe, short_and_long_words_merge_by_the_definition) {
  std::mt19937 random(3);
  std::array<TokenId, 256> bytes{};
  for (TokenId i = 0; i < 256; ++i) bytes[i] = i;
  for (int round = 0; round < 20; ++round) {
    std::vector<Bpe::Merge> merges;
    std::vector<TokenId> symbols = {'a', 'b', 'c'};
    for (TokenId id = 256; id < 256 + 20; ++id) {
      merges.push_back({symbols[random() % symbols.size()], symbols[random() % symbols.size()], id});
      for (size_t i = 0; i + 1 < merges.size(); ++i) {
        // A pair that is there already: the later entry would count.
        if (merges[i].left == merges.back().left && merges[i].right == merges.back().right) merges.pop_back();
      }
      symbols.push_back(id);
    }
    const Bpe bpe(bytes, merges, {});
    Bpe::Scratch scratch;
    for (const size_t size : {1, 2, 3, 10, 23, 24, 25, 26, 63, 64, 65, 66, 150}) {
      std::string word;
      for (size_t i = 0; i < size; ++i) word += "abc"[random() % 3];
      for (int again = 0; again < 2; ++again) {
        std::vector<int64_t> ids;
        bpe.encode(word, scratch, ids);
        EXPECT_EQ(ids, merge_slowly(word, merges)) << word;
      }
    }
  }
}

TEST(TokenizerErrors, broken_files) {
  EXPECT_THAT(error_of(""), StartsWith("broken JSON: at line 1, column 1: "));
  EXPECT_THAT(error_of(gpt2().dump().substr(0, 2000)),
              AllOf(StartsWith("broken JSON: at line 1, column "), HasSubstr("complete?")));
  EXPECT_THAT(error_of("{\"model\": \"\xFF\"}"), StartsWith("broken JSON"));
  EXPECT_EQ(error_of("[1]"), "got an array of 1, expected a JSON object");
  EXPECT_EQ(error_of("{}"), "model: got nothing, expected an object");
  EXPECT_EQ(error_of(R"({"model": {"type": "BPE"}})"),
            "model.vocab: got nothing, expected an object of tokens and ids");
  EXPECT_EQ(error_with("/model/vocab", json::object()),
            "model.vocab: got nothing, expected an object of tokens and ids");
  EXPECT_EQ(error_with("/model/vocab/the", 1.5),
            "model.vocab: token \"the\": got id 1.5, expected an integer from 0 to 2147483647");
  EXPECT_THAT(error_with("/model/vocab/the", -1), HasSubstr("got id -1"));
  EXPECT_THAT(error_with("/model/vocab/the", 3000000000), HasSubstr("got id 3000000000"));
}

TEST(TokenizerErrors, merges_that_are_missing_or_do_not_fit) {
  json without = gpt2();
  without["model"].erase("merges");
  EXPECT_EQ(error_of(without.dump()), "model.merges: got nothing, expected an array");
  EXPECT_EQ(error_with("/model/merges/3", "only"),
            "model.merges: entry 3: got \"only\", expected two tokens with a space between");
  EXPECT_THAT(error_with("/model/merges/3", "a b c"), HasSubstr("entry 3: got \"a b c\""));
  EXPECT_THAT(error_with("/model/merges/3", {"a", ""}), HasSubstr("entry 3: got an array of 2"));
  EXPECT_THAT(error_with("/model/merges/3", 7), HasSubstr("entry 3: got 7"));
  EXPECT_THAT(error_with("/model/merges/0", "zz a"),
              StartsWith("merge 0: token \"zz\" is not in the vocabulary. Hint: "));
  EXPECT_THAT(error_with("/model/merges/0", "! \""), StartsWith("merge 0: token \"!\"\" is not in the vocabulary"));
  json no_byte = gpt2();
  no_byte["model"]["vocab"].erase("!");
  EXPECT_THAT(error_of(no_byte.dump()), StartsWith("byte 33: token \"!\" is not in the vocabulary"));
}

TEST(TokenizerErrors, ids_given_twice) {
  EXPECT_THAT(error_with("/model/vocab/a_second", 5), AllOf(StartsWith("id 5 twice: \""), HasSubstr("\"a_second\"")));
  const json token = {{"content", "<|new|>"}, {"id", 5}, {"special", true}};
  EXPECT_THAT(error_with("/added_tokens/-", token),
              StartsWith("added token \"<|new|>\": got id 5, which is the id of \""));
  json both = gpt2();  // as in GPT-2 itself
  both["model"]["vocab"]["<|endoftext|>"] = both["added_tokens"][0]["id"];
  EXPECT_NO_THROW(Tokenizer::from_json(both.dump()));
  both["added_tokens"][0]["id"] = 9999;
  EXPECT_THAT(error_of(both.dump()), AllOf(StartsWith("added token \"<|endoftext|>\": got id 9999, but it has id "),
                                           HasSubstr("Hint: are the files of one tokenizer?")));
}

TEST(TokenizerErrors, other_kinds_are_refused_by_name) {
  const char* hint = "Hint: byte-level BPE is read (Qwen, Llama 3, GPT-2); for other models give token ids in the data";
  for (const std::string type : {"Unigram", "WordPiece", "WordLevel"}) {
    EXPECT_EQ(error_with("/model/type", type), "model: type: got \"" + type + "\", expected BPE. " + hint);
  }
  EXPECT_THAT(error_with("/model/byte_fallback", true), StartsWith("model: byte_fallback: got true, expected false"));
  EXPECT_THAT(error_with("/model/continuing_subword_prefix", "##"),
              StartsWith("model: continuing_subword_prefix: got \"##\""));
  EXPECT_THAT(error_with("/model/end_of_word_suffix", "</w>"), StartsWith("model: end_of_word_suffix: got \"</w>\""));
  EXPECT_THAT(error_with("/model/dropout", 0.1), StartsWith("model: dropout: got 0.1"));
  EXPECT_THAT(error_with("/model/ignore_merges", "yes"),
              StartsWith("model: ignore_merges: got \"yes\", expected true or"));
  for (const std::string type : {"NFKC", "Lowercase", "Prepend"}) {
    EXPECT_THAT(error_with("/normalizer", {{"type", type}}),
                StartsWith("normalizer: got " + type + ", expected NFC or none"));
    EXPECT_THAT(error_with("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", type}}}}}),
                StartsWith("normalizer: got " + type));
  }
  EXPECT_THAT(error_with("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Sequence"}}}}}),
              StartsWith("normalizer: a sequence inside"));
  for (const std::string type : {"Metaspace", "Whitespace", "BertPreTokenizer"}) {
    EXPECT_THAT(error_with("/pre_tokenizer", {{"type", type}}),
                StartsWith("pre_tokenizer: got " + type + ", expected Split, Digits and ByteLevel"));
  }
  EXPECT_THAT(error_with("/pre_tokenizer", nullptr), StartsWith("pre_tokenizer: no ByteLevel at the end"));
  EXPECT_THAT(error_with("/pre_tokenizer", {{"type", "Digits"}}), StartsWith("pre_tokenizer: no ByteLevel at the end"));
  EXPECT_THAT(error_with("/pre_tokenizer", 5), StartsWith("pre_tokenizer: got 5"));
  EXPECT_THAT(error_with("/pre_tokenizer/add_prefix_space", true),
              StartsWith("pre_tokenizer: add_prefix_space: got true"));
  EXPECT_THAT(error_with("/pre_tokenizer",
                         {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}}),
              StartsWith("pre_tokenizer: ByteLevel before other parts"));
  const auto split = [](const json& pattern, const std::string& behavior) {
    return error_with("/pre_tokenizer", {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}});
  };
  EXPECT_THAT(split({{"String", " "}}, "Isolated"), StartsWith("pre_tokenizer: Split: pattern: got an object"));
  EXPECT_THAT(split({{"Regex", " "}}, "Removed"), StartsWith("pre_tokenizer: Split: behavior: got Removed"));
  EXPECT_THAT(error_with("/added_tokens/0/lstrip", true),
              StartsWith("added_tokens, entry 0: lstrip of \"<|endoftext|>\": got"));
  EXPECT_THAT(error_with("/added_tokens/0/content", ""), StartsWith("added token \"\": id "));
  EXPECT_THAT(error_with("/added_tokens/0", 4), StartsWith("added_tokens, entry 0: got 4, expected an object"));
  EXPECT_THAT(error_with("/added_tokens", "x"), StartsWith("added_tokens: got \"x\", expected an array"));
}

TEST(TokenizerErrors, digits_are_cut_as_asked) {
  for (const bool individual : {false, true}) {
    json file = gpt2();
    file["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", individual}}, {{"type", "ByteLevel"}}}}};
    file["model"]["vocab"]["12"] = 5000;
    file["model"]["merges"].push_back("1 2");
    EXPECT_EQ(Tokenizer::from_json(file.dump()).encode("12").size(), individual ? 2u : 1u);
  }
}

TEST(TokenizerErrors, vocab_and_merges) {
  const std::string vocab = text_of(tokenizer_dir("qwen") + "/vocab.json");
  const std::string merges = text_of(tokenizer_dir("qwen") + "/merges.txt");
  const auto refused = [&](const std::string& v, const std::string& m, const std::string& config) -> std::string {
    try {
      Tokenizer::from_vocab(v, m, config, "DIR");
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused("{", merges, ""), StartsWith("[tokenizer] DIR/vocab.json: broken JSON: at line 1"));
  EXPECT_THAT(refused(vocab, "", ""), StartsWith("[tokenizer] DIR/merges.txt: no merge in the file"));
  EXPECT_THAT(refused(vocab, "#version: 0.2\nab\n", ""),
              StartsWith("[tokenizer] DIR/merges.txt:2: got \"ab\", expected two tokens"));
  EXPECT_THAT(refused(vocab, "#version: 0.2\n\na b", ""), StartsWith("[tokenizer] DIR/merges.txt:2: got \"\""));
  EXPECT_THAT(refused(vocab, "a \xFF", ""), StartsWith("[tokenizer] DIR/merges.txt: invalid UTF-8 at byte 2"));
  EXPECT_THAT(
      refused(vocab, merges, "{\"tokenizer_class\": \"LlamaTokenizer\"}"),
      StartsWith("[tokenizer] DIR/tokenizer_config.json: tokenizer_class: got \"LlamaTokenizer\", expected Qwen2"));
  EXPECT_THAT(refused(vocab, merges, "{\"add_prefix_space\": true}"), HasSubstr("add_prefix_space: got true"));
  EXPECT_THAT(refused(vocab, merges, R"({"added_tokens_decoder": {"x": {"content": "<a>"}}})"),
              HasSubstr("added_tokens_decoder \"x\": token \"<a>\": got id \"x\", expected an integer"));
  EXPECT_THAT(refused(vocab, merges, R"({"added_tokens_decoder": {"7": {"content": "<a>"}}})"),
              HasSubstr("added token \"<a>\": got id 7, which is the id of"));
  EXPECT_THAT(refused(vocab, merges, R"({"added_tokens_decoder": []})"),
              HasSubstr("got an array of 0, expected an object"));
}

TEST(TokenizerErrors, damaged_files_give_an_error_or_a_tokenizer_and_nothing_else) {
  const std::string good = text_of(tokenizer_dir("llama3") + "/tokenizer.json");
  std::mt19937 random(11);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bad = good;
    for (int i = 0; i < 1 + round % 3; ++i) {
      const size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = static_cast<char>(random());
          break;
        case 1:
          bad[at] = "0123456789\"[]{},:\\\n "[random() % 20];
          break;
        case 2:
          bad.erase(at, 1 + random() % 40);
          break;
        default:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 40));
          break;
      }
    }
    try {
      const Tokenizer tokenizer = Tokenizer::from_json(bad);
      const auto ids = tokenizer.encode("Hello 12 the \u4f60 <|eot_id|>");
      EXPECT_EQ(tokenizer.decode(ids), "Hello 12 the \u4f60 <|eot_id|>");
    } catch (const DataError& error) {
      ++refused;
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(TokenizerErrors, nesting_is_bounded) {
  const std::string deep(200000, '[');
  for (const std::string key : {"model", "normalizer", "pre_tokenizer", "added_tokens"}) {
    EXPECT_THAT([&] { Tokenizer::from_json("{\"" + key + "\":" + deep); },
                ::testing::ThrowsMessage<DataError>(HasSubstr("JSON nested deeper than 32 levels")));
  }
}

TEST(TokenizerErrors, folders) {
  const auto refused = [](const std::string& dir) -> std::string {
    try {
      Tokenizer::from_dir(dir);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  const std::string hint = ". Hint: --tokenizer DIR is the model's Hugging Face folder";
  EXPECT_EQ(refused("/nowhere"),
            "[tokenizer] /nowhere: not a folder, expected tokenizer.json, or vocab.json and merges.txt" + hint);
  const std::filesystem::path dir = ::testing::TempDir() + "ringfold_tokenizer_" + std::to_string(getpid());
  std::filesystem::create_directory(dir);
  EXPECT_THAT(refused(dir), HasSubstr(": no tokenizer in it, expected tokenizer.json"));
  std::ofstream(dir / "tokenizer.model") << "x";
  EXPECT_THAT(refused(dir), HasSubstr("got tokenizer.model (SentencePiece, which is not read)"));
  std::ofstream(dir / "vocab.json") << "{}";
  EXPECT_THAT(refused(dir), HasSubstr("merges.txt is missing"));
  std::ofstream(dir / "tokenizer.json") << "{";
  EXPECT_THAT(refused(dir), StartsWith("[tokenizer] " + (dir / "tokenizer.json").string() + ": broken JSON"));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace ringfold
