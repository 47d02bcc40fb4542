#include "ringfold/data/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
constexpr uint32_t kNone = UINT32_MAX;
constexpr uint64_t kFree = UINT64_MAX;

constexpr size_t kLongestCachedWord = 64;
constexpr size_t kSlots = 1 << 16;
// Up to here looking at all pairs beats keeping them in a heap.
constexpr size_t kShortWord = 24;

}  // namespace

Bpe::Scratch::Scratch() : slots_(kSlots) {}

Bpe::Bpe(const std::array<TokenId, 256>& byte_ids, const std::vector<Merge>& merges,
         std::unordered_map<std::string, TokenId> whole_words)
    : byte_ids_(byte_ids), whole_words_(std::move(whole_words)) {
  const size_t slots = std::bit_ceil(2 * merges.size() + 2);
  pairs_.assign(slots, {kFree, kNoRank, 0});
  hash_shift_ = 64 - std::countr_zero(slots);
  for (const Merge& merge : merges) {
    const uint64_t key = uint64_t{merge.left} << 32 | merge.right;
    pairs_[slot_of(key)] = {key, static_cast<uint32_t>(merged_of_rank_.size()), merge.merged};
    merged_of_rank_.push_back(merge.merged);
  }
}

size_t Bpe::slot_of(uint64_t key) const {
  size_t slot = key * 0x9E3779B97F4A7C15ULL >> hash_shift_;  // Fibonacci hashing
  while (pairs_[slot].key != key && pairs_[slot].key != kFree) slot = (slot + 1) & (pairs_.size() - 1);
  return slot;
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<int64_t>& tokens) const {
  RINGFOLD_ASSERT(!word.empty() && word.size() < kNone / 2, "words are cut from lines of bounded length");
  if (word.size() == 1) {
    tokens.push_back(byte_ids_[static_cast<unsigned char>(word[0])]);
    return;
  }
  if (word.size() > kLongestCachedWord) {
    merge(word, scratch);
    tokens.insert(tokens.end(), scratch.ids_.begin(), scratch.ids_.end());
    return;
  }
  const uint64_t hash = std::hash<std::string_view>()(word);
  size_t at = hash & (kSlots - 1);
  for (; scratch.slots_[at].word_bytes != 0; at = (at + 1) & (kSlots - 1)) {
    const Scratch::Slot& slot = scratch.slots_[at];
    if (slot.hash == hash && word == std::string_view(scratch.cached_words_).substr(slot.word_begin, slot.word_bytes)) {
      const auto ids = scratch.cached_ids_.begin() + slot.ids_begin;
      tokens.insert(tokens.end(), ids, ids + slot.ids);
      return;
    }
  }
  merge(word, scratch);
  tokens.insert(tokens.end(), scratch.ids_.begin(), scratch.ids_.end());
  // A full cache starts anew: the frequent words are back soon.
  if (++scratch.used_slots_ > kSlots / 2) {
    scratch.slots_.assign(kSlots, {});
    scratch.cached_words_.clear();
    scratch.cached_ids_.clear();
    scratch.used_slots_ = 1;
    at = hash & (kSlots - 1);
  }
  scratch.slots_[at] = {hash, static_cast<uint32_t>(scratch.cached_words_.size()),
                        static_cast<uint32_t>(scratch.cached_ids_.size()), static_cast<uint32_t>(word.size()),
                        static_cast<uint32_t>(scratch.ids_.size())};
  scratch.cached_words_ += word;
  scratch.cached_ids_.insert(scratch.cached_ids_.end(), scratch.ids_.begin(), scratch.ids_.end());
}

void Bpe::merge(std::string_view word, Scratch& scratch) const {
  scratch.ids_.clear();
  if (!whole_words_.empty()) {
    if (const auto whole = whole_words_.find(std::string(word)); whole != whole_words_.end()) {
      scratch.ids_.push_back(whole->second);
      return;
    }
  }
  auto& symbols = scratch.symbols_;
  const auto size = static_cast<uint32_t>(word.size());
  symbols.resize(size);
  for (uint32_t i = 0; i < size; ++i) {
    symbols[i] = {byte_ids_[static_cast<unsigned char>(word[i])], kNoRank, i - 1, i + 1};
    if (i > 0) symbols[i - 1].rank = rank(symbols[i - 1].id, symbols[i].id);
  }
  symbols[size - 1].next = kNone;
  if (size <= kShortWord) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
}

void Bpe::merge_short(Scratch& scratch) const {
  auto& symbols = scratch.symbols_;
  const auto by_rank = [](const auto& a, const auto& b) { return a.rank < b.rank; };
  while (true) {
    const auto first = std::min_element(symbols.begin(), symbols.end(), by_rank);
    if (first->rank == kNoRank) break;
    first->id = merged_of_rank_[first->rank];
    const auto next = symbols.erase(first + 1);
    first->rank = next == symbols.end() ? kNoRank : rank(first->id, next->id);
    if (first != symbols.begin()) (first - 1)->rank = rank((first - 1)->id, first->id);
  }
  for (const auto& symbol : symbols) scratch.ids_.push_back(symbol.id);
}

void Bpe::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;  // rank << 32 | position: the earliest merge, leftmost first, on top
  heap.clear();
  const auto push = [&](uint32_t at) {
    if (symbols[at].rank == kNoRank) return;
    heap.push_back(uint64_t{symbols[at].rank} << 32 | at);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (uint32_t i = 0; i < symbols.size(); ++i) push(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    Scratch::Symbol& first = symbols[static_cast<uint32_t>(top)];
    // Entries of pairs that are gone stay in the heap; a symbol that was merged away has no rank.
    if (first.rank != top >> 32) continue;
    Scratch::Symbol& second = symbols[first.next];
    first.id = merged_of_rank_[first.rank];
    first.next = second.next;
    second.rank = kNoRank;
    first.rank = kNoRank;
    const auto at = static_cast<uint32_t>(top);
    if (first.next != kNone) {
      symbols[first.next].previous = at;
      first.rank = rank(first.id, symbols[first.next].id);
      push(at);
    }
    if (first.previous != kNone) {
      symbols[first.previous].rank = rank(symbols[first.previous].id, first.id);
      push(first.previous);
    }
  }
  for (uint32_t at = 0; at != kNone; at = symbols[at].next) scratch.ids_.push_back(symbols[at].id);
}

}  // namespace ringfold
