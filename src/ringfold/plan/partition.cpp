#include "ringfold/plan/partition.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

// A set of items as a chain through a shared `next` array: merging two sets moves no items. Two sets of one run never
// share an item, so comparing their item lists ends at the first item.
struct ItemSet {
  int64_t sum = 0;
  int count = 0;
  int head = -1;
  int tail = -1;
};

bool heavier(const ItemSet& a, const ItemSet& b) {
  return std::tie(a.sum, a.count, a.head) > std::tie(b.sum, b.count, b.head);
}

// A partial solution: k sets, heaviest first; the empty ones at the end are not stored.
struct PartialSplit {
  std::vector<ItemSet> sets;
  int64_t spread = 0;
};

// Heap order: the largest spread is popped first; ties by the heavier first set, then nothing is left to tie.
bool popped_later(const PartialSplit& a, const PartialSplit& b) {
  if (a.spread != b.spread) return a.spread < b.spread;
  return heavier(b.sets.front(), a.sets.front());
}

class Differencing {
 public:
  Differencing(size_t items, int parts) : parts_(static_cast<size_t>(parts)), next_(items, -1) {}

  PartialSplit single(int item, int64_t weight) const {
    return {{ItemSet{weight, 1, item, item}}, parts_ == 1 ? 0 : weight};
  }

  // Adds the lightest sets of b to the heaviest of a and the other way round.
  void merge(PartialSplit& a, const PartialSplit& b) {
    const size_t a_sets = a.sets.size();
    const size_t untouched = std::min(a_sets, parts_ - b.sets.size());
    for (size_t j = b.sets.size(); j-- > 0;) {
      const size_t position = parts_ - 1 - j;
      if (position < a_sets) {
        append(a.sets[position], b.sets[j]);
      } else {
        a.sets.push_back(b.sets[j]);
      }
    }
    const auto changed = a.sets.begin() + static_cast<std::ptrdiff_t>(untouched);
    std::sort(changed, a.sets.end(), heavier);
    std::inplace_merge(a.sets.begin(), changed, a.sets.end(), heavier);
    a.spread = a.sets.front().sum - (a.sets.size() == parts_ ? a.sets.back().sum : 0);
  }

  Part items_of(const ItemSet& set) const {
    Part items;
    items.reserve(static_cast<size_t>(set.count));
    for (int item = set.head; item != -1; item = next_[static_cast<size_t>(item)]) items.push_back(item);
    std::sort(items.begin(), items.end());
    return items;
  }

 private:
  void append(ItemSet& set, const ItemSet& more) {
    next_[static_cast<size_t>(set.tail)] = more.head;
    set = {set.sum + more.sum, set.count + more.count, set.head, more.tail};
  }

  size_t parts_;
  std::vector<int> next_;
};

}  // namespace

std::vector<Part> karmarkar_karp(std::span<const int64_t> weights, int parts) {
  RINGFOLD_ASSERT(parts >= 1, "a split needs at least one part");
  std::vector<Part> result(static_cast<size_t>(parts));
  if (weights.empty()) return result;

  Differencing differencing(weights.size(), parts);
  std::vector<PartialSplit> heap;
  heap.reserve(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    RINGFOLD_ASSERT(weights[i] > 0, "weights are positive");
    heap.push_back(differencing.single(static_cast<int>(i), weights[i]));
  }
  std::make_heap(heap.begin(), heap.end(), popped_later);
  while (heap.size() > 1) {
    std::pop_heap(heap.begin(), heap.end(), popped_later);
    PartialSplit first = std::move(heap.back());
    heap.pop_back();
    std::pop_heap(heap.begin(), heap.end(), popped_later);
    differencing.merge(first, heap.back());
    heap.back() = std::move(first);
    std::push_heap(heap.begin(), heap.end(), popped_later);
  }
  const auto& sets = heap.front().sets;
  for (size_t p = 0; p < sets.size(); ++p) result[p] = differencing.items_of(sets[p]);
  return result;
}

int first_fit_count(std::span<const int64_t> weights, int64_t capacity) {
  std::vector<int64_t> bins;
  for (const int64_t weight : weights) {
    const auto bin = std::find_if(bins.begin(), bins.end(), [&](int64_t used) { return used + weight <= capacity; });
    if (bin == bins.end()) {
      bins.push_back(weight);
    } else {
      *bin += weight;
    }
  }
  return static_cast<int>(bins.size());
}

std::vector<int64_t> gather(std::span<const int64_t> values, std::span<const int> indices) {
  std::vector<int64_t> picked;
  picked.reserve(indices.size());
  for (const int index : indices) picked.push_back(values[static_cast<size_t>(index)]);
  return picked;
}

}  // namespace ringfold
