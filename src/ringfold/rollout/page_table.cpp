#include "ringfold/rollout/page_table.h"

#include <numeric>

#include "ringfold/base/error.h"
#include "ringfold/base/pow2.h"

namespace ringfold {

PageTable::PageTable(const PageShape& shape)
    : shape_(shape),
      free_slots_(static_cast<size_t>(shape.sequences)),
      free_pages_(static_cast<size_t>(shape.pages)),
      table_(static_cast<size_t>(shape.sequences * shape.pages_per_sequence), 0) {
  // The last ones are taken first.
  std::iota(free_slots_.rbegin(), free_slots_.rend(), int64_t{0});
  std::iota(free_pages_.rbegin(), free_pages_.rend(), int32_t{0});
}

bool PageTable::fits(int64_t tokens, int64_t copies) const {
  const int64_t pages = ceil_div(tokens, shape_.page_tokens);
  return pages <= shape_.pages_per_sequence && copies <= static_cast<int64_t>(free_slots_.size()) &&
         copies * pages <= static_cast<int64_t>(free_pages_.size());
}

int64_t PageTable::place(const Row& row, int64_t position) const {
  const int64_t at = row.slot * shape_.pages_per_sequence + position / shape_.page_tokens;
  return table_[static_cast<size_t>(at)] * shape_.page_tokens + position % shape_.page_tokens;
}

std::vector<int64_t> PageTable::add(int64_t tokens, int64_t most_tokens) {
  RINGFOLD_ASSERT(tokens >= 1 && tokens <= most_tokens && fits(most_tokens, 1), "a sequence that fits");
  const Row row{free_slots_.back(), tokens, ceil_div(most_tokens, shape_.page_tokens)};
  free_slots_.pop_back();
  for (int64_t page = 0; page < row.pages; ++page) {
    table_[static_cast<size_t>(row.slot * shape_.pages_per_sequence + page)] = free_pages_.back();
    free_pages_.pop_back();
  }
  rows_.push_back(row);
  std::vector<int64_t> places;
  for (int64_t position = 0; position < tokens; ++position) places.push_back(place(row, position));
  return places;
}

void PageTable::keep(const std::vector<int64_t>& rows) {
  std::vector<Row> kept;
  size_t next = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (next < rows.size() && rows[next] == static_cast<int64_t>(i)) {
      kept.push_back(row);
      ++next;
      continue;
    }
    for (int64_t page = 0; page < row.pages; ++page) {
      int32_t& entry = table_[static_cast<size_t>(row.slot * shape_.pages_per_sequence + page)];
      free_pages_.push_back(entry);
      entry = 0;
    }
    free_slots_.push_back(row.slot);
  }
  RINGFOLD_ASSERT(next == rows.size(), "rows to keep are ascending and there");
  rows_ = std::move(kept);
}

PageStep PageTable::grow(int64_t rows) {
  RINGFOLD_ASSERT(rows >= sequences(), "a row a sequence");
  const auto count = static_cast<size_t>(rows);
  PageStep step{std::vector<int64_t>(count, 0),
                std::vector<int64_t>(count, 0),
                std::vector<int64_t>(count, 0),
                std::vector<int64_t>(count, -1),
                {0}};
  for (size_t i = 0; i < count; ++i) {
    int64_t pages = 0;
    if (i < rows_.size()) {
      Row& row = rows_[i];
      RINGFOLD_ASSERT(row.tokens < row.pages * shape_.page_tokens, "a sequence outgrows its pages");
      step.position[i] = row.tokens;
      step.slot[i] = row.slot;
      step.token[i] = place(row, row.tokens);
      step.length[i] = ++row.tokens;
      pages = ceil_div(row.tokens, shape_.page_tokens);
    }
    step.work_begin.push_back(step.work_begin.back() + pages);
  }
  return step;
}

}  // namespace ringfold
