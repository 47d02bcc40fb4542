#include "ringfold/data/chat_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "ringfold/base/nearest.h"
#include "ringfold/base/outside_text.h"
#include "ringfold/data/sample_json.h"
#include "ringfold/data/utf8.h"

namespace ringfold {
namespace {

// Keys in the order of the file: the arguments of a tool call are part of what the model learns to write.
using json = nlohmann::ordered_json;
using Role = ChatMessage::Role;

const std::array<std::string, 4> kRoles = {"system", "user", "assistant", "tool"};
// The last two say what answers which call; the template does not show them.
const std::array<std::string, 5> kKeys = {"role", "content", "tool_calls", "tool_call_id", "name"};

std::string shown(const json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  return printable(value.dump());
}

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  bad_sample("messages", where + what);
}

const json& member(const json& object, const char* key) {
  static const json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

// As Python's json.dumps(value, ensure_ascii=False), which the template uses: a blank after each comma and colon.
std::string to_template_json(const json& value) {
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, item] : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += json(key).dump() + ": ";
    text += to_template_json(item);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

std::string parse_content(const json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) {
    fail(where, fmt::format("content: got {}, expected a string or an array of text parts", shown(value)));
  }
  std::string text;
  for (const json& part : value) {
    if (!part.is_object()) fail(where, fmt::format("content: got a part {}, expected an object", shown(part)));
    for (const char* key : {"image", "image_url", "video"}) {
      if (part.contains(key) || member(part, "type") == key) {
        bad_sample("images",
                   fmt::format("{}a part with \"{}\": vision-language models are not built yet. Hint: use text "
                               "samples",
                               where, key));
      }
    }
    if (!member(part, "text").is_string()) fail(where, "content: a part without \"text\", expected text parts only");
    text += member(part, "text").get_ref<const std::string&>();
  }
  return text;
}

// Both forms: {"name", "arguments"} and {"type": "function", "function": {"name", "arguments"}}.
ToolCall parse_tool_call(const json& entry, const std::string& where) {
  const json& call = entry.is_object() && entry.contains("function") ? member(entry, "function") : entry;
  if (!call.is_object() || !member(call, "name").is_string() || !call.contains("arguments")) {
    fail(where, fmt::format("tool_calls: got {}, expected objects with \"name\" and \"arguments\"", shown(call)));
  }
  const json& arguments = member(call, "arguments");
  return {member(call, "name").get<std::string>(),
          arguments.is_string() ? arguments.get<std::string>() : to_template_json(arguments)};
}

void check_keys(const json& message, const std::string& where) {
  for (const auto& [key, value] : message.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end()) continue;
    if (key == "reasoning_content") {
      fail(where, "key \"reasoning_content\" is not read. Hint: put <think>...</think> into the content");
    }
    const std::string near = nearest_name(key, kKeys);
    fail(where, fmt::format("unknown key \"{}\". Hint: {}", printable(key),
                            near.empty() ? fmt::format("known are {}", fmt::join(kKeys, ", "))
                                         : fmt::format("did you mean \"{}\"?", near)));
  }
}

ChatMessage parse_message(const json& value, size_t index) {
  const std::string where = fmt::format("message {}: ", index);
  if (!value.is_object()) fail(where, fmt::format("got {}, expected an object", shown(value)));
  check_keys(value, where);
  const json& role = member(value, "role");
  const auto known = std::find(kRoles.begin(), kRoles.end(), role.is_string() ? role.get<std::string>() : "");
  if (known == kRoles.end()) {
    fail(where, fmt::format("role: got {}, expected one of {}", role.is_null() ? "none" : shown(role),
                            fmt::join(kRoles, ", ")));
  }
  ChatMessage message;
  message.role = static_cast<Role>(known - kRoles.begin());
  if (message.role == Role::kSystem && index > 0) fail(where, "a system message, expected at most one, as the first");
  const json& calls = member(value, "tool_calls");
  if (!calls.is_null()) {
    if (message.role != Role::kAssistant)
      fail(where, fmt::format("tool_calls: got some of {}, expected them of the assistant", *known));
    if (!calls.is_array()) fail(where, fmt::format("tool_calls: got {}, expected an array", shown(calls)));
    for (const json& call : calls) message.tool_calls.push_back(parse_tool_call(call, where));
  }
  // A turn of nothing but calls comes with content null, or none.
  const json& content = member(value, "content");
  if (!content.is_null() || message.tool_calls.empty()) message.content = parse_content(content, where);
  return message;
}

}  // namespace

Chat parse_chat(const std::string& line) {
  const auto wanted = [](int depth, json::parse_event_t event, json& parsed) {
    return depth != 1 || event != json::parse_event_t::key || parsed == "messages" || parsed == "tools";
  };
  const json record = json::parse(line, wanted);
  const json& messages = member(record, "messages");
  if (!messages.is_array() || messages.empty()) {
    fail("", fmt::format("got {}, expected an array of at least one message",
                         messages.is_array() ? "no message" : shown(messages)));
  }
  Chat chat;
  for (size_t i = 0; i < messages.size(); ++i) chat.messages.push_back(parse_message(messages[i], i));
  const json& tools = member(record, "tools");
  if (tools.is_null()) return chat;
  if (!tools.is_array()) bad_sample("tools", fmt::format("got {}, expected an array", shown(tools)));
  for (const json& tool : tools) {
    if (!tool.is_object()) bad_sample("tools", fmt::format("got {}, expected objects", shown(tool)));
    chat.tools.push_back(to_template_json(tool));
  }
  return chat;
}

}  // namespace ringfold
