#include "ringfold/data/added_tokens.h"

namespace ringfold {

uint32_t AddedTokens::child_of(uint32_t node, char byte) const {
  uint32_t child = nodes_[node].child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

void AddedTokens::add(std::string_view content, TokenId id) {
  starts_[static_cast<unsigned char>(content[0])] = true;
  uint32_t node = 0;
  for (const char byte : content) {
    uint32_t child = child_of(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.byte = byte, .sibling = nodes_[node].child});
      nodes_[node].child = child;
    }
    node = child;
  }
  nodes_[node].is_token = true;
  nodes_[node].id = id;
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    Match match{begin, begin, 0};
    uint32_t node = 0;
    for (size_t at = begin; at < text.size() && (node = child_of(node, text[at])) != 0; ++at) {
      if (nodes_[node].is_token) match = {begin, at + 1, nodes_[node].id};
    }
    if (match.end > begin) return match;
  }
  return {text.size(), text.size(), 0};
}

}  // namespace ringfold
