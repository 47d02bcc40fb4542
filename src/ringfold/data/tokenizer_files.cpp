#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ringfold/base/error.h"
#include "ringfold/base/outside_text.h"
#include "ringfold/data/tokenizer_spec.h"
#include "ringfold/data/utf8.h"

namespace ringfold {
namespace {

using nlohmann::json;

constexpr int64_t kMaxId = (int64_t{1} << 31) - 1;
constexpr size_t kMaxPatterns = 16;
constexpr int kDeepestNesting = 32;
constexpr const char* kHint =
    "Hint: byte-level BPE is read (Qwen, Llama 3, GPT-2); for other models give token ids in the data";

// GPT-2, and ByteLevel by itself.
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Qwen2, Qwen2.5 and Qwen3.
constexpr const char* kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw DataError(fmt::format("{}: {}", where, what));
}

std::string shown(const json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  return printable(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

json parse_object(std::string_view text, const std::string& where) {
  if (nested_deeper_than(text, kDeepestNesting)) {
    fail(where, fmt::format("JSON nested deeper than {} levels, expected a tokenizer's. Hint: is it the right file?",
                            kDeepestNesting));
  }
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::exception& error) {
    std::string reason = error.what();
    if (const size_t at = reason.find("line "); at != std::string::npos) reason = reason.substr(at);
    fail(where, fmt::format("broken JSON: at {}. Hint: is the file complete?", printable(reason)));
  }
  if (!parsed.is_object()) fail(where, fmt::format("got {}, expected a JSON object", shown(parsed)));
  return parsed;
}

// The member, or null where it is missing.
const json& member(const json& object, const char* key) {
  static const json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

bool flag(const json& object, const char* key, bool otherwise, const std::string& where) {
  const json& value = member(object, key);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) fail(where, fmt::format("{}: got {}, expected true or false", key, shown(value)));
  return value.get<bool>();
}

const std::string& string_member(const json& object, const char* key, const std::string& where) {
  const json& value = member(object, key);
  if (!value.is_string()) fail(where, fmt::format("{}: got {}, expected a string", key, shown(value)));
  return value.get_ref<const std::string&>();
}

TokenId parse_id(const json& value, const std::string& where, const std::string& token) {
  if (!value.is_number_integer() || value < 0 || value > kMaxId) {
    fail(where, fmt::format("token \"{}\": got id {}, expected an integer from 0 to {}", printable(token), shown(value),
                            kMaxId));
  }
  return value.get<TokenId>();
}

void parse_normalizer(const json& value, const std::string& where, TokenizerSpec& spec) {
  if (value.is_null()) return;
  if (!value.is_object()) fail(where, fmt::format("got {}, expected an object", shown(value)));
  const std::string& type = string_member(value, "type", where);
  if (type == "NFC") {
    spec.nfc = true;
  } else if (const json& parts = member(value, "normalizers"); type == "Sequence" && parts.is_array()) {
    for (const json& part : parts) {
      if (part.is_object() && member(part, "type") == "Sequence") fail(where, "a sequence inside a sequence");
      parse_normalizer(part, where, spec);
    }
  } else {
    fail(where, fmt::format("got {}, expected NFC or none. {}", printable(type), kHint));
  }
}

void parse_pre_tokenizer_part(const json& value, const std::string& where, TokenizerSpec& spec) {
  if (!value.is_object()) fail(where, fmt::format("got {}, expected an object", shown(value)));
  const std::string& type = string_member(value, "type", where);
  if (type == "ByteLevel") {
    if (flag(value, "add_prefix_space", false, where))
      fail(where, fmt::format("add_prefix_space: got true, expected false. {}", kHint));
    if (flag(value, "use_regex", true, where)) spec.patterns.push_back(kGpt2Pattern);
  } else if (type == "Digits") {
    spec.patterns.push_back(flag(value, "individual_digits", false, where) ? R"(\p{N})" : R"(\p{N}+)");
  } else if (type == "Split") {
    const json& pattern = member(value, "pattern");
    if (!pattern.is_object() || !member(pattern, "Regex").is_string()) {
      fail(where, fmt::format("Split: pattern: got {}, expected {{\"Regex\": ...}}", shown(pattern)));
    }
    // Isolated: matches and what is between them are words, whichever way round that is put.
    if (const std::string& behavior = string_member(value, "behavior", where); behavior != "Isolated") {
      fail(where, fmt::format("Split: behavior: got {}, expected Isolated", printable(behavior)));
    }
    spec.patterns.push_back(member(pattern, "Regex").get<std::string>());
  } else {
    fail(where, fmt::format("got {}, expected Split, Digits and ByteLevel. {}", printable(type), kHint));
  }
  if (spec.patterns.size() > kMaxPatterns) fail(where, fmt::format("more than {} patterns", kMaxPatterns));
}

void parse_pre_tokenizer(const json& value, const std::string& where, TokenizerSpec& spec) {
  const bool is_sequence = value.is_object() && member(value, "type") == "Sequence";
  const json parts = is_sequence ? member(value, "pretokenizers") : json::array({value});
  if (!parts.is_array() || parts.empty()) fail(where, "Sequence: expected an array of pretokenizers");
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    const bool is_bytes = parts[i].is_object() && member(parts[i], "type") == "ByteLevel";
    if (!parts[i].is_null()) parse_pre_tokenizer_part(parts[i], where, spec);
    if (is_bytes != last) {
      fail(where, fmt::format("{}, expected ByteLevel once, as the last part. {}",
                              last ? "no ByteLevel at the end" : "ByteLevel before other parts", kHint));
    }
  }
}

void parse_vocab(const json& value, const std::string& where, TokenizerSpec& spec) {
  if (!value.is_object() || value.empty()) {
    fail(where, fmt::format("got {}, expected an object of tokens and ids", value.empty() ? "nothing" : shown(value)));
  }
  spec.vocab.reserve(value.size());
  for (const auto& [token, id] : value.items()) {
    spec.vocab.emplace_back(token, parse_id(id, where, token));
  }
}

// "left right"; false for anything else.
bool split_merge(std::string_view line, std::pair<std::string, std::string>& merge) {
  const size_t space = line.find(' ');
  if (space == 0 || space >= line.size() - 1 || line.find(' ', space + 1) != std::string_view::npos) return false;
  merge = {std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
  return true;
}

void parse_merges(const json& value, const std::string& where, TokenizerSpec& spec) {
  if (!value.is_array())
    fail(where, fmt::format("got {}, expected an array", value.is_null() ? "nothing" : shown(value)));
  spec.merges.reserve(value.size());
  for (const json& entry : value) {
    std::pair<std::string, std::string> merge;
    bool good = false;
    if (entry.is_string()) {
      good = split_merge(entry.get_ref<const std::string&>(), merge);
    } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      merge = {entry[0].get<std::string>(), entry[1].get<std::string>()};
      good = !merge.first.empty() && !merge.second.empty();
    }
    if (!good) {
      fail(where,
           fmt::format("entry {}: got {}, expected two tokens with a space between", spec.merges.size(), shown(entry)));
    }
    spec.merges.push_back(std::move(merge));
  }
}

void parse_model(const json& model, const std::string& where, TokenizerSpec& spec) {
  if (!model.is_object())
    fail(where, fmt::format("got {}, expected an object", model.is_null() ? "nothing" : shown(model)));
  // Files of early versions name no type.
  if (const json& type = member(model, "type"); !type.is_null() && type != "BPE") {
    fail(where, fmt::format("type: got {}, expected BPE. {}", shown(type), kHint));
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const json& value = member(model, key); !value.is_null() && value != "") {
      fail(where, fmt::format("{}: got {}, expected none. {}", key, shown(value), kHint));
    }
  }
  if (const json& dropout = member(model, "dropout"); !dropout.is_null() && dropout != 0) {
    fail(where, fmt::format("dropout: got {}, expected none: ids must not be random", shown(dropout)));
  }
  if (flag(model, "byte_fallback", false, where))
    fail(where, fmt::format("byte_fallback: got true, expected false. {}", kHint));
  spec.ignore_merges = flag(model, "ignore_merges", false, where);
  parse_vocab(member(model, "vocab"), where + ".vocab", spec);
  parse_merges(member(model, "merges"), where + ".merges", spec);
}

void add_token(const json& entry, const json& id, const std::string& where, TokenizerSpec& spec) {
  if (!entry.is_object()) fail(where, fmt::format("got {}, expected an object", shown(entry)));
  AddedToken token;
  token.content = string_member(entry, "content", where);
  token.id = parse_id(id, where, token.content);
  token.special = flag(entry, "special", false, where);
  token.normalized = flag(entry, "normalized", !token.special, where);
  for (const char* key : {"single_word", "lstrip", "rstrip"}) {
    if (flag(entry, key, false, where)) {
      fail(where, fmt::format("{} of \"{}\": got true, expected false. {}", key, printable(token.content), kHint));
    }
  }
  spec.added.push_back(std::move(token));
}

void parse_merges_text(std::string_view text, const std::string& where, TokenizerSpec& spec) {
  if (const auto bad = invalid_utf8_offset(text)) fail(where, fmt::format("invalid UTF-8 at byte {}", *bad));
  for (int64_t line_number = 1; !text.empty(); ++line_number) {
    const size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version")) continue;
    std::pair<std::string, std::string> merge;
    if (!split_merge(line, merge)) {
      fail(fmt::format("{}:{}", where, line_number),
           fmt::format("got \"{}\", expected two tokens with a space between", printable(line)));
    }
    spec.merges.push_back(std::move(merge));
  }
}

void parse_config(std::string_view text, const std::string& where, TokenizerSpec& spec) {
  const json config = parse_object(text, where);
  const json& name = member(config, "tokenizer_class");
  if (name == "GPT2Tokenizer" || name == "GPT2TokenizerFast") {
    spec.nfc = false;
    spec.patterns = {kGpt2Pattern};
  } else if (name != "Qwen2Tokenizer" && name != "Qwen2TokenizerFast" && !name.is_null()) {
    fail(where, fmt::format("tokenizer_class: got {}, expected Qwen2Tokenizer or GPT2Tokenizer. Hint: a tokenizer.json "
                            "says how text is split; put it into the folder",
                            shown(name)));
  }
  if (flag(config, "add_prefix_space", false, where)) fail(where, "add_prefix_space: got true, expected false");
  if (!member(config, "pretokenize_regex").is_null()) {
    spec.patterns = {string_member(config, "pretokenize_regex", where)};
  }
  const json& added = member(config, "added_tokens_decoder");
  if (added.is_null()) return;
  if (!added.is_object()) fail(where, fmt::format("added_tokens_decoder: got {}, expected an object", shown(added)));
  for (const auto& [key, entry] : added.items()) {
    const std::string at = fmt::format("{}: added_tokens_decoder \"{}\"", where, printable(key));
    const json id = json::parse(key, nullptr, false);
    add_token(entry, id.is_discarded() ? json(key) : id, at, spec);
  }
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& file) {
  TokenizerSpec spec;
  spec.file = "[tokenizer] " + file;
  const json root = parse_object(text, spec.file);
  parse_model(member(root, "model"), spec.file + ": model", spec);
  parse_normalizer(member(root, "normalizer"), spec.file + ": normalizer", spec);
  parse_pre_tokenizer(member(root, "pre_tokenizer"), spec.file + ": pre_tokenizer", spec);
  const json& added = member(root, "added_tokens");
  const std::string where = spec.file + ": added_tokens";
  if (!added.is_null() && !added.is_array()) fail(where, fmt::format("got {}, expected an array", shown(added)));
  for (size_t i = 0; i < added.size(); ++i) {
    const json& id = added[i].is_object() ? member(added[i], "id") : added[i];
    add_token(added[i], id, fmt::format("{}, entry {}", where, i), spec);
  }
  return spec;
}

TokenizerSpec parse_vocab_and_merges(std::string_view vocab_json, std::string_view merges_txt,
                                     std::string_view config_json, const std::string& dir) {
  TokenizerSpec spec;
  spec.file = "[tokenizer] " + dir;
  spec.nfc = true;
  spec.patterns = {kQwenPattern};
  const std::string vocab_file = spec.file + "/vocab.json";
  parse_vocab(parse_object(vocab_json, vocab_file), vocab_file, spec);
  parse_merges_text(merges_txt, spec.file + "/merges.txt", spec);
  if (spec.merges.empty()) fail(spec.file + "/merges.txt", "no merge in the file. Hint: is it complete?");
  if (!config_json.empty()) parse_config(config_json, spec.file + "/tokenizer_config.json", spec);
  return spec;
}

}  // namespace ringfold
