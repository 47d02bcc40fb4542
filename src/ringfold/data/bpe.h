// Byte-level byte-pair encoding: the bytes of a word become tokens by merging, again and again, the pair of neighbours
// whose merge was learned first. (Sennrich et al. 2016; over bytes: GPT-2.)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ringfold {

using TokenId = uint32_t;

class Bpe {
 public:
  // What a thread works with: the words it has met, and room to merge in.
  class Scratch {
   public:
    Scratch();

   private:
    friend class Bpe;
    struct Symbol {
      TokenId id;
      uint32_t rank;  // of the merge with the next symbol
      uint32_t previous, next;
    };
    struct Slot {
      uint64_t hash = 0;
      uint32_t word_begin = 0, ids_begin = 0;
      uint32_t word_bytes = 0, ids = 0;  // word_bytes 0: free
    };
    std::vector<Symbol> symbols_;
    std::vector<uint64_t> heap_;
    std::vector<Slot> slots_;
    size_t used_slots_ = 0;
    std::string cached_words_;
    std::vector<TokenId> cached_ids_;
    std::vector<TokenId> ids_;
  };

  struct Merge {
    TokenId left, right, merged;
  };

  // `byte_ids`: token of each single byte. `merges` in order of rank; the last of equal pairs counts. `whole_words`:
  // with ignore_merges, words that are one token by themselves, else empty.
  Bpe(const std::array<TokenId, 256>& byte_ids, const std::vector<Merge>& merges,
      std::unordered_map<std::string, TokenId> whole_words);

  // Appends the tokens of a non-empty word below 2^31 bytes.
  void encode(std::string_view word, Scratch& scratch, std::vector<int64_t>& tokens) const;

 private:
  struct Pair {
    uint64_t key;
    uint32_t rank;
    TokenId merged;
  };
  // Index in pairs_ of the pair, or of the free entry where it would stand.
  size_t slot_of(uint64_t key) const;
  uint32_t rank(TokenId left, TokenId right) const { return pairs_[slot_of(uint64_t{left} << 32 | right)].rank; }
  void merge(std::string_view word, Scratch& scratch) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;

  std::array<TokenId, 256> byte_ids_;
  std::vector<Pair> pairs_;  // open addressing, a power of two
  int hash_shift_ = 0;
  std::vector<TokenId> merged_of_rank_;
  std::unordered_map<std::string, TokenId> whole_words_;
};

}  // namespace ringfold
