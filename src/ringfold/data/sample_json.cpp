#include "ringfold/data/sample_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cfloat>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "ringfold/base/error.h"
#include "ringfold/base/nearest.h"
#include "ringfold/base/outside_text.h"
#include "ringfold/data/chat_json.h"
#include "ringfold/data/chat_template.h"
#include "ringfold/data/utf8.h"

namespace ringfold {
namespace {

using nlohmann::json;

constexpr int kDeepestNesting = 32;

const std::array<std::string, 16> kKeys = {"tokens",        "prompt",     "response",        "messages",
                                           "tools",         "text",       "response_length", "loss_mask",
                                           "reward",        "group",      "old_log_probs",   "rollout_log_probs",
                                           "ref_log_probs", "advantages", "truncated",       "meta"};

[[noreturn]] void fail(const std::string& kind, const std::string& detail) {
  bad_sample(kind, detail);
}

std::string shown(const json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  return printable(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

json parse_line(const std::string& line) {
  if (const auto bad = invalid_utf8_offset(line)) {
    fail("invalid UTF-8", fmt::format("byte 0x{:02X} at offset {} of the line. Hint: convert the file to UTF-8",
                                      static_cast<unsigned char>(line[*bad]), *bad));
  }
  std::set<std::string> seen;
  const auto watch = [&seen](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepestNesting) fail("nested too deep", fmt::format("more than {} levels", kDeepestNesting));
    if (depth == 1 && event == json::parse_event_t::key && !seen.insert(parsed.get<std::string>()).second) {
      fail("key given twice", fmt::format("got a second \"{}\", expected one", printable(parsed.get<std::string>())));
    }
    return true;
  };
  try {
    return json::parse(line, watch);
  } catch (const json::exception& error) {
    std::string reason = error.what();
    if (const size_t colon = reason.find("column "); colon != std::string::npos) reason = reason.substr(colon);
    if (const size_t bracket = reason.find("] "); reason.starts_with('[') && bracket != std::string::npos) {
      reason = reason.substr(bracket + 2);
    }
    const bool not_finite = line.find("NaN") != std::string::npos || line.find("Infinity") != std::string::npos;
    fail("broken JSON", fmt::format("at {}. Hint: {}", printable(reason, 160),
                                    not_finite ? "NaN and Infinity are not JSON; leave such samples out"
                                               : "one complete JSON object a line; is the line cut off?"));
  }
}

void check_keys(const json& record) {
  for (const auto& [key, value] : record.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end()) continue;
    if (key == "images") {
      fail("images", "key \"images\": vision-language models are not built yet. Hint: use text samples");
    }
    const std::string near = nearest_name(key, kKeys);
    fail("unknown key",
         near.empty() ? fmt::format("\"{}\". Hint: known are {}; anything else may stand under meta", printable(key),
                                    fmt::join(kKeys, ", "))
                      : fmt::format("\"{}\". Hint: did you mean \"{}\"? Anything that is not to be read may stand "
                                    "under meta",
                                    printable(key), near));
  }
}

const json& array_at(const json& record, const std::string& key) {
  const json& value = record.at(key);
  if (!value.is_array()) fail("wrong type", fmt::format("{}: got {}, expected an array", key, shown(value)));
  return value;
}

int64_t non_negative_integer(const json& value, const std::string& where) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits || value.get<int64_t>() < 0) {
    fail("wrong type", fmt::format("{}: got {}, expected an integer >= 0", where, shown(value)));
  }
  return value.get<int64_t>();
}

double finite_number(const json& value, const std::string& where) {
  if (!value.is_number()) fail("wrong type", fmt::format("{}: got {}, expected a number", where, shown(value)));
  const auto number = value.get<double>();
  if (!(std::abs(number) <= FLT_MAX)) {
    fail("number too large", fmt::format("{}: got {}, expected a 32-bit float", where, shown(value)));
  }
  return number;
}

bool true_or_false(const json& value, const std::string& where) {
  if (!value.is_boolean()) fail("wrong type", fmt::format("{}: got {}, expected true or false", where, shown(value)));
  return value.get<bool>();
}

void check_length(int64_t tokens, const DataOptions& options) {
  if (tokens == 0) fail("empty sample", "got 0 tokens, expected at least 1");
  if (options.max_tokens > 0 && tokens > options.max_tokens) {
    throw BadSample("too long", too_long_message(tokens, options.max_tokens, options.max_tokens_flags));
  }
}

[[noreturn]] void fail_outside(size_t position, const std::string& id, int64_t vocab_size) {
  fail("id outside the vocabulary",
       vocab_size > 0
           ? fmt::format("position {}: got id {}, expected 0 to {} (vocabulary size {}). Hint: are the tokens "
                         "from this model's tokenizer?",
                         position, id, vocab_size - 1, vocab_size)
           : fmt::format("position {}: got id {}, expected an id >= 0", position, id));
}

std::vector<int64_t> parse_tokens(const json& record, const DataOptions& options) {
  const json& array = array_at(record, "tokens");
  check_length(static_cast<int64_t>(array.size()), options);
  std::vector<int64_t> tokens;
  tokens.reserve(array.size());
  for (const json& value : array) {
    const auto position = tokens.size();
    if (!value.is_number_integer()) {
      fail("wrong type", fmt::format("tokens, position {}: got {}, expected a token id", position, shown(value)));
    }
    const bool huge = value.is_number_unsigned() &&
                      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    const int64_t id = huge ? -1 : value.get<int64_t>();
    if (id < 0 || (options.vocab_size > 0 && id >= options.vocab_size)) {
      fail_outside(position, shown(value), options.vocab_size);
    }
    tokens.push_back(id);
  }
  return tokens;
}

const std::string& string_at(const json& record, const std::string& key) {
  const json& value = record.at(key);
  if (!value.is_string()) fail("wrong type", fmt::format("{}: got {}, expected a string", key, shown(value)));
  return value.get_ref<const std::string&>();
}

// Exactly one of "tokens", "text", "prompt" (with "response") and "messages" (perhaps with "tools").
std::string kind_of(const json& record) {
  std::vector<std::string> kinds;
  for (const char* key : {"tokens", "text", "prompt", "messages"}) {
    if (record.contains(key)) kinds.emplace_back(key);
  }
  for (const auto& [key, needed] : {std::pair("response", "prompt"), {"prompt", "response"}, {"tools", "messages"}}) {
    if (record.contains(key) && !record.contains(needed)) {
      fail("half a sample", fmt::format("got \"{}\" without \"{}\", expected both", key, needed));
    }
  }
  if (kinds.empty()) {
    fail("no tokens",
         "key \"tokens\" is missing. Hint: an array of token ids; or prompt and response, or messages, as "
         "text");
  }
  if (kinds.size() > 1) {
    fail("two samples in one", fmt::format("got the keys {}, expected one of them", fmt::join(kinds, " and ")));
  }
  return kinds[0];
}

// Messages are rendered here: their text must not open or end turns itself.
void refuse_special(const std::string& text, const Tokenizer& tokenizer) {
  if (const std::string_view special = tokenizer.special_in(text); !special.empty()) {
    fail("special token in a message",
         fmt::format(
             "the text spells out {}, expected plain text. Hint: take it out, or give the rendered chat as prompt "
             "and response",
             special));
  }
}

ChatTokens tokenize_chat(const std::string& line, const json& record, const Tokenizer& tokenizer,
                         Tokenizer::Workspace& workspace) {
  for (const char* key : {"response_length", "loss_mask"}) {
    if (record.contains(key))
      fail("messages", fmt::format("got {} too, which follows from the turns. Hint: leave it out", key));
  }
  for (const char* token : {"<|im_start|>", "<|im_end|>"}) {
    if (!tokenizer.id_of(token)) {
      fail("messages",
           fmt::format("the tokenizer has no {}, expected one of the Qwen family. Hint: render the chat with the "
                       "model's own template and give it as prompt and response",
                       token));
    }
  }
  const Chat chat = parse_chat(line);
  for (const std::string& tool : chat.tools) refuse_special(tool, tokenizer);
  for (const ChatMessage& message : chat.messages) {
    refuse_special(message.content, tokenizer);
    for (const ToolCall& call : message.tool_calls) refuse_special(call.name + " " + call.arguments, tokenizer);
  }
  return encode_chat(render_chat(chat.messages, chat.tools), tokenizer, workspace);
}

std::vector<uint8_t> parse_mask(const json& record) {
  std::vector<uint8_t> mask;
  for (const json& value : array_at(record, "loss_mask")) {
    const bool zero_or_one = value.is_number_integer() && (value == 0 || value == 1);
    if (!value.is_boolean() && !zero_or_one) {
      fail("wrong type", fmt::format("loss_mask, entry {}: got {}, expected 0 or 1", mask.size(), shown(value)));
    }
    mask.push_back(value.is_boolean() ? value.get<bool>() : value.get<int>() != 0);
  }
  return mask;
}

[[noreturn]] void fail_response_at_token_0(int64_t length) {
  fail("response starts at token 0",
       fmt::format("got a response of {0} in a sample of {0} tokens, expected at least 1 token before it. Hint: the "
                   "first token has nothing to be predicted from; keep the prompt, or a start token, in the sample",
                   length));
}

// response_length and the mask of the whole sample, from whichever of the two keys are there. `text_response`: tokens
// of the response where it came as text.
void parse_response(const json& record, std::optional<int64_t> text_response, Sample& sample) {
  const int64_t length = sample.length();
  const bool has_length = text_response || record.contains("response_length");
  sample.response_length = text_response.value_or(length - 1);
  if (has_length) {
    if (record.contains("response_length")) {
      sample.response_length = non_negative_integer(record.at("response_length"), "response_length");
    }
    if (text_response && sample.response_length != *text_response) {
      fail("response length", fmt::format("response_length {}, response of {} tokens. Hint: leave response_length out",
                                          sample.response_length, *text_response));
    }
    if (sample.response_length == length) fail_response_at_token_0(length);
    if (sample.response_length > length) {
      fail("response longer than the sample", fmt::format("got response_length {}, expected at most {} ({} tokens)",
                                                          sample.response_length, length - 1, length));
    }
  }
  sample.loss_mask.assign(static_cast<size_t>(length), 0);
  if (!record.contains("loss_mask")) {
    std::fill(sample.loss_mask.begin() + sample.response_begin(), sample.loss_mask.end(), uint8_t{1});
    return;
  }
  const std::vector<uint8_t> mask = parse_mask(record);
  const auto entries = static_cast<int64_t>(mask.size());
  if (has_length && entries != sample.response_length) {
    fail("mask length", fmt::format("response of {} tokens, loss_mask of {} entries. Hint: with response_length the "
                                    "mask has one entry a response token",
                                    sample.response_length, entries));
  }
  if (!has_length && entries > length) {
    fail("mask length", fmt::format("sample of {} tokens, loss_mask of {} entries", length, entries));
  }
  if (!has_length && entries == length) {
    if (mask[0]) fail_response_at_token_0(length);
  } else {
    sample.response_length = entries;
  }
  std::copy(mask.begin(), mask.end(), sample.loss_mask.end() - entries);
}

std::vector<double> parse_per_response(const json& record, const std::string& key, int64_t response_length) {
  std::vector<double> values;
  if (!record.contains(key)) return values;
  const json& array = array_at(record, key);
  if (static_cast<int64_t>(array.size()) != response_length) {
    fail(key + " length", fmt::format("response of {} tokens, {} of {} entries. Hint: one entry a response token",
                                      response_length, key, array.size()));
  }
  values.reserve(array.size());
  for (const json& value : array) {
    values.push_back(finite_number(value, fmt::format("{}, entry {}", key, values.size())));
  }
  return values;
}

std::string parse_group(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.dump();
  fail("wrong type", fmt::format("group: got {}, expected a string or an integer (the prompt's id)", shown(value)));
}

// Tokens, response and mask of a sample that came as text.
void parse_text(const std::string& line, const json& record, const std::string& kind, const DataOptions& options,
                Tokenizer::Workspace* workspace, Sample& sample) {
  if (!options.tokenizer) {
    fail("text without a tokenizer",
         fmt::format(
             "got the key \"{}\", expected token ids. Hint: give --tokenizer DIR, the model's Hugging Face folder "
             "with tokenizer.json, or vocab.json and merges.txt",
             kind));
  }
  const Tokenizer& tokenizer = *options.tokenizer;
  std::optional<int64_t> response;
  std::vector<uint8_t> chat_mask;
  try {
    if (kind == "messages") {
      ChatTokens chat = tokenize_chat(line, record, tokenizer, *workspace);
      sample.tokens = std::move(chat.tokens);
      chat_mask = std::move(chat.loss_mask);
    } else {
      tokenizer.encode(string_at(record, kind), *workspace, sample.tokens);
      if (kind == "prompt") {
        // Apart from the prompt, whose tokens are thus those that the model was asked with.
        const int64_t prompt_tokens = sample.length();
        tokenizer.encode(string_at(record, "response"), *workspace, sample.tokens);
        response = sample.length() - prompt_tokens;
      }
    }
  } catch (const DataError& error) {
    fail("text not tokenized", error.what());
  }
  check_length(sample.length(), options);
  const auto outside = std::find_if(sample.tokens.begin(), sample.tokens.end(), [&options](int64_t id) {
    return options.vocab_size > 0 && id >= options.vocab_size;
  });
  if (outside != sample.tokens.end()) {
    fail_outside(static_cast<size_t>(outside - sample.tokens.begin()), std::to_string(*outside), options.vocab_size);
  }
  if (kind != "messages") return parse_response(record, response, sample);
  const auto first_loss = std::find(chat_mask.begin(), chat_mask.end(), uint8_t{1});
  sample.response_length = chat_mask.end() - first_loss;
  sample.loss_mask = std::move(chat_mask);
}

}  // namespace

void bad_sample(const std::string& kind, const std::string& detail) {
  throw BadSample(kind, fmt::format("{}: {}", kind, detail));
}

std::string too_long_message(int64_t tokens, int64_t limit, const std::string& flags) {
  return fmt::format(
      "too long: got {} tokens, expected at most {} ({}). Hint: raise the limit, shorten the sample, or leave it out "
      "with --skip-bad-samples",
      tokens, limit, flags);
}

Sample parse_sample(const std::string& line, const DataOptions& options, Tokenizer::Workspace* workspace) {
  const json record = parse_line(line);
  if (!record.is_object()) {
    fail("no JSON object", fmt::format("got {}, expected an object such as {{\"tokens\": [1, 2]}}", shown(record)));
  }
  check_keys(record);
  Sample sample;
  if (const std::string kind = kind_of(record); kind != "tokens") {
    parse_text(line, record, kind, options, workspace, sample);
  } else {
    sample.tokens = parse_tokens(record, options);
    parse_response(record, std::nullopt, sample);
  }
  if (record.contains("reward")) sample.reward = finite_number(record.at("reward"), "reward");
  if (record.contains("group")) sample.group = parse_group(record.at("group"));
  if (record.contains("truncated")) sample.truncated = true_or_false(record.at("truncated"), "truncated");
  const int64_t response = sample.response_length;
  sample.old_log_probs = parse_per_response(record, "old_log_probs", response);
  sample.rollout_log_probs = parse_per_response(record, "rollout_log_probs", response);
  sample.ref_log_probs = parse_per_response(record, "ref_log_probs", response);
  sample.advantages = parse_per_response(record, "advantages", response);
  return sample;
}

}  // namespace ringfold
