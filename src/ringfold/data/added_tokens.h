// Finds added tokens (such as <|im_end|>) spelled out in a text: leftmost first, the longest of those that begin there.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ringfold/data/bpe.h"

namespace ringfold {

class AddedTokens {
 public:
  void add(std::string_view content, TokenId id);  // content not empty

  struct Match {
    size_t begin, end;  // bytes; begin == end: none
    TokenId id;
  };
  Match find(std::string_view text, size_t from) const;

 private:
  struct Node {
    char byte;
    bool is_token = false;
    TokenId id = 0;
    uint32_t child = 0, sibling = 0;  // 0: none
  };
  uint32_t child_of(uint32_t node, char byte) const;

  std::vector<Node> nodes_{Node{}};  // a trie; the root comes first
  bool starts_[256] = {};
};

}  // namespace ringfold
