// Which pages of a cache belong to which sequence: pages for all the tokens that a sequence may ever have are taken
// when it begins and come back when it ends, so that none runs out on the way. Numbers only; the cache itself is
// elsewhere (paged_decoder.h).
#pragma once

#include <cstdint>
#include <vector>

namespace ringfold {

struct PageShape {
  int64_t pages = 0;               // of the cache
  int64_t page_tokens = 0;         // of a page
  int64_t sequences = 0;           // at a time
  int64_t pages_per_sequence = 0;  // at most
};

// What one step of `rows` sequences needs, and rows without a sequence up to a round number.
struct PageStep {
  std::vector<int64_t> position;    // of the new token; 0 in an empty row
  std::vector<int64_t> length;      // with the new token; 0 in an empty row
  std::vector<int64_t> slot;        // the row of table(); 0 in an empty row
  std::vector<int64_t> token;       // place of the new token in the cache: page * page_tokens + place in the page; -1
  std::vector<int64_t> work_begin;  // (rows + 1): running sum of the pages that the rows use
};

class PageTable {
 public:
  explicit PageTable(const PageShape& shape);

  const PageShape& shape() const { return shape_; }
  bool fits(int64_t tokens, int64_t copies) const;
  // Begins a sequence that has `tokens` and may grow to `most_tokens`; returns the places of its tokens in the cache.
  std::vector<int64_t> add(int64_t tokens, int64_t most_tokens);
  void keep(const std::vector<int64_t>& rows);
  int64_t sequences() const { return static_cast<int64_t>(rows_.size()); }
  // Every sequence grows by one token; `rows` (>= sequences()) rows in all.
  PageStep grow(int64_t rows);

  // (sequences, pages_per_sequence) of the shape, by slot; unused entries 0.
  const std::vector<int32_t>& table() const { return table_; }

 private:
  struct Row {
    int64_t slot, tokens, pages;
  };
  int64_t place(const Row& row, int64_t position) const;

  PageShape shape_;
  std::vector<Row> rows_;
  std::vector<int64_t> free_slots_;
  std::vector<int32_t> free_pages_, table_;
};

}  // namespace ringfold
