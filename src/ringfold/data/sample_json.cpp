#include "ringfold/data/sample_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cfloat>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "ringfold/base/nearest.h"
#include "ringfold/data/jsonl.h"

namespace ringfold {
namespace {

using nlohmann::json;

constexpr int kDeepestNesting = 32;
constexpr size_t kShownChars = 60;

const std::array<std::string, 10> kKeys = {"tokens",        "response_length",   "loss_mask",     "reward",     "group",
                                           "old_log_probs", "rollout_log_probs", "ref_log_probs", "advantages", "meta"};

[[noreturn]] void fail(const std::string& kind, const std::string& detail) {
  throw BadSample(kind, fmt::format("{}: {}", kind, detail));
}

// Text from the file as it may stand in a one-line message.
std::string shown(std::string text, size_t limit = kShownChars) {
  if (text.size() > limit) text = text.substr(0, limit) + "...";
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

std::string shown(const json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  return shown(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

json parse_line(const std::string& line) {
  std::set<std::string> seen;
  const auto watch = [&seen](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepestNesting) fail("nested too deep", fmt::format("more than {} levels", kDeepestNesting));
    if (depth == 1 && event == json::parse_event_t::key && !seen.insert(parsed.get<std::string>()).second) {
      fail("key given twice", fmt::format("got a second \"{}\", expected one", shown(parsed.get<std::string>())));
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
    fail("broken JSON", fmt::format("at {}. Hint: {}", shown(reason, 160),
                                    not_finite ? "NaN and Infinity are not JSON; leave such samples out"
                                               : "one complete JSON object a line; is the line cut off?"));
  }
}

void check_keys(const json& record) {
  for (const auto& [key, value] : record.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end()) continue;
    if (key == "prompt" || key == "response" || key == "messages" || key == "text") {
      fail("text without tokens", fmt::format("key \"{}\": text needs the tokenizer, which is not built yet. Hint: "
                                              "tokenize with scripts/data/tokenize_text.py",
                                              key));
    }
    if (key == "images") {
      fail("images", "key \"images\": vision-language models are not built yet. Hint: use text samples");
    }
    const std::string near = nearest_name(key, kKeys);
    fail("unknown key",
         near.empty() ? fmt::format("\"{}\". Hint: known are {}; anything else may stand under meta", shown(key),
                                    fmt::join(kKeys, ", "))
                      : fmt::format("\"{}\". Hint: did you mean \"{}\"? Anything that is not to be read may stand "
                                    "under meta",
                                    shown(key), near));
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

std::vector<int64_t> parse_tokens(const json& record, int64_t vocab_size, int64_t max_tokens) {
  if (!record.contains("tokens")) fail("no tokens", "key \"tokens\" is missing. Hint: an array of token ids");
  const json& array = array_at(record, "tokens");
  if (array.empty()) fail("empty sample", "got 0 tokens, expected at least 1");
  const auto count = static_cast<int64_t>(array.size());
  if (max_tokens > 0 && count > max_tokens) throw BadSample("too long", too_long_message(count, max_tokens));
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
    if (id < 0 || (vocab_size > 0 && id >= vocab_size)) {
      fail("id outside the vocabulary",
           vocab_size > 0 ? fmt::format("position {}: got id {}, expected 0 to {} (vocabulary size {}). Hint: are the "
                                        "tokens from this model's tokenizer?",
                                        position, shown(value), vocab_size - 1, vocab_size)
                          : fmt::format("position {}: got id {}, expected an id >= 0", position, shown(value)));
    }
    tokens.push_back(id);
  }
  return tokens;
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

// response_length and the mask of the whole sample, from whichever of the two keys are there.
void parse_response(const json& record, Sample& sample) {
  const int64_t length = sample.length();
  sample.response_length = length - 1;
  const bool has_length = record.contains("response_length");
  if (has_length) {
    sample.response_length = non_negative_integer(record.at("response_length"), "response_length");
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

}  // namespace

std::string too_long_message(int64_t tokens, int64_t limit) {
  return fmt::format(
      "too long: got {} tokens, expected at most {} (--rollout-max-context-len). Hint: raise the limit, shorten the "
      "sample, or leave it out with --skip-bad-samples",
      tokens, limit);
}

Sample parse_sample(const std::string& line, int64_t vocab_size, int64_t max_tokens) {
  const json record = parse_line(line);
  if (!record.is_object()) {
    fail("no JSON object", fmt::format("got {}, expected an object such as {{\"tokens\": [1, 2]}}", shown(record)));
  }
  check_keys(record);
  Sample sample;
  sample.tokens = parse_tokens(record, vocab_size, max_tokens);
  parse_response(record, sample);
  if (record.contains("reward")) sample.reward = finite_number(record.at("reward"), "reward");
  if (record.contains("group")) sample.group = parse_group(record.at("group"));
  const int64_t response = sample.response_length;
  sample.old_log_probs = parse_per_response(record, "old_log_probs", response);
  sample.rollout_log_probs = parse_per_response(record, "rollout_log_probs", response);
  sample.ref_log_probs = parse_per_response(record, "ref_log_probs", response);
  sample.advantages = parse_per_response(record, "advantages", response);
  return sample;
}

}  // namespace ringfold
