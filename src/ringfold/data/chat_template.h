// Chat messages -> text as Qwen3's own template writes it (ChatML: the template of the Instruct-2507 and VL models),
// cut where loss begins and ends. What an assistant wrote - content, tool calls - and the <|im_end|> after it are loss;
// the line end behind that and all other turns are not. Content stands as given, also <think> blocks, in every turn:
// nothing is stripped from earlier turns and no empty block is put in (docs/reference/data.md says where the
// hybrid-thinking template differs).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ringfold/data/tokenizer.h"

namespace ringfold {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text
};

struct ChatMessage {
  enum class Role { kSystem, kUser, kAssistant, kTool };
  Role role = Role::kUser;
  std::string content;
  std::vector<ToolCall> tool_calls;  // of an assistant
};

struct ChatSpan {
  std::string text;
  bool is_loss = false;
};

// `tools`: one JSON text each, announced in the system turn. A system message comes first or not at all.
std::vector<ChatSpan> render_chat(std::span<const ChatMessage> messages, std::span<const std::string> tools);

struct ChatTokens {
  std::vector<int64_t> tokens;
  std::vector<uint8_t> loss_mask;  // a token each
};

// Each span by itself: what an assistant wrote begins with a token of its own, as when it was generated. Elsewhere the
// ids are those of the whole text.
ChatTokens encode_chat(std::span<const ChatSpan> spans, const Tokenizer& tokenizer, Tokenizer::Workspace& workspace);

}  // namespace ringfold
