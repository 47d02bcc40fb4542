// The chat of one JSON line: its messages and tools, checked.
#pragma once

#include <string>
#include <vector>

#include "ringfold/data/chat_template.h"

namespace ringfold {

struct Chat {
  std::vector<ChatMessage> messages;
  std::vector<std::string> tools;  // JSON texts
};

// `line`: valid JSON, an object with the key "messages". Content may be a string or an array of text parts. Throws
// BadSample: roles, keys or types that are not known, images, a system message that is not the first.
Chat parse_chat(const std::string& line);

}  // namespace ringfold
