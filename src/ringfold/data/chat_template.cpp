#include "ringfold/data/chat_template.h"

#include <fmt/format.h>

namespace ringfold {
namespace {

constexpr const char* kToolsHead =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function "
    "signatures within <tools></tools> XML tags:\n<tools>";
constexpr const char* kToolsTail =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
    "<args-json-object>}\n</tool_call>";

using Role = ChatMessage::Role;

std::string system_turn(const std::string& content, bool has_content, std::span<const std::string> tools) {
  if (tools.empty()) return has_content ? fmt::format("<|im_start|>system\n{}<|im_end|>\n", content) : "";
  std::string text = "<|im_start|>system\n";
  if (has_content) text += content + "\n\n";
  text += kToolsHead;
  for (const std::string& tool : tools) text += "\n" + tool;
  return text + kToolsTail + "<|im_end|>\n";
}

std::string assistant_text(const ChatMessage& message) {
  std::string text = message.content;
  for (const ToolCall& call : message.tool_calls) {
    if (!text.empty()) text += '\n';
    text +=
        fmt::format("<tool_call>\n{{\"name\": \"{}\", \"arguments\": {}}}\n</tool_call>", call.name, call.arguments);
  }
  return text + "<|im_end|>";
}

}  // namespace

std::vector<ChatSpan> render_chat(std::span<const ChatMessage> messages, std::span<const std::string> tools) {
  const bool has_system = !messages.empty() && messages[0].role == Role::kSystem;
  std::vector<ChatSpan> spans = {{system_turn(has_system ? messages[0].content : "", has_system, tools)}};
  const auto is_tool = [&messages](size_t i) { return i < messages.size() && messages[i].role == Role::kTool; };
  for (size_t i = has_system ? 1 : 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    std::string& before = spans.back().text;
    if (message.role == Role::kAssistant) {
      before += "<|im_start|>assistant\n";
      spans.push_back({assistant_text(message), true});
      spans.push_back({"\n"});
    } else if (message.role == Role::kTool) {
      // Answers of tools that follow each other share one turn.
      if (i == 0 || !is_tool(i - 1)) before += "<|im_start|>user";
      before += fmt::format("\n<tool_response>\n{}\n</tool_response>", message.content);
      if (!is_tool(i + 1)) before += "<|im_end|>\n";
    } else {
      before += fmt::format("<|im_start|>user\n{}<|im_end|>\n", message.content);
    }
  }
  return spans;
}

ChatTokens encode_chat(std::span<const ChatSpan> spans, const Tokenizer& tokenizer, Tokenizer::Workspace& workspace) {
  ChatTokens chat;
  for (const ChatSpan& span : spans) {
    tokenizer.encode(span.text, workspace, chat.tokens);
    chat.loss_mask.resize(chat.tokens.size(), span.is_loss ? 1 : 0);
  }
  return chat;
}

}  // namespace ringfold
