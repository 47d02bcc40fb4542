// One micro-step, filled greedily under a height.
#include <algorithm>
#include <queue>

#include "ringfold/plan/mixed.h"

namespace ringfold {
namespace {

constexpr int kJoinTries = 24;

}  // namespace

Pack pack_of(const CostTable& table, int level, std::vector<int> samples) {
  Pack pack{level, 0, 0, 0, std::move(samples)};
  for (const int s : pack.samples) {
    pack.tokens += table.cost(s, level).tokens;
    pack.attention_ns += table.cost(s, level).attention_ns;
  }
  pack.time_ns = table.pack_ns(level, pack.tokens, pack.attention_ns);
  return pack;
}

bool pack_fits(const CostTable& table, const Pack& pack) {
  if (pack.samples.size() == 1) return table.need(pack.samples[0]) <= pack.level;
  return pack.tokens <= table.budget();
}

void Shelf::measure() {
  height_ns = 0;
  for (const Pack& pack : packs) height_ns = std::max(height_ns, pack.time_ns);
}

int64_t total_ns(const Shelves& shelves) {
  int64_t total = 0;
  for (const Shelf& shelf : shelves) total += shelf.height_ns;
  return total;
}

Filler::Filler(const CostTable& table)
    : table_(table), by_time_(static_cast<size_t>(table.levels())), next_(static_cast<size_t>(table.samples()), -1) {}

void Filler::append(Open& pack, int sample) {
  const SampleCost& cost = table_.cost(sample, pack.level);
  if (pack.count++ == 0) {
    pack.head = sample;
  } else {
    next_[static_cast<size_t>(pack.tail)] = sample;
  }
  pack.tail = sample;
  next_[static_cast<size_t>(sample)] = -1;
  pack.tokens += cost.tokens;
  pack.attention_ns += cost.attention_ns;
  pack.time_ns = table_.pack_ns(pack.level, pack.tokens, pack.attention_ns);
}

bool Filler::open(int sample, int64_t height_ns, const FillRule& rule) {
  for (int level = std::max(table_.need(sample), rule.least_level); level <= rule.most_level; ++level) {
    if ((1 << level) > free_ranks_) return false;
    if (table_.cost(sample, level).alone_ns > height_ns) continue;
    Open pack;
    pack.level = level;
    append(pack, sample);
    free_ranks_ -= 1 << level;
    auto& queue = by_time_[static_cast<size_t>(level)];
    const auto place = std::upper_bound(queue.begin(), queue.end(), pack.time_ns, [&](int64_t time, int p) {
      return time < packs_[static_cast<size_t>(p)].time_ns;
    });
    queue.insert(place, static_cast<int>(packs_.size()));
    packs_.push_back(pack);
    return true;
  }
  return false;
}

// Best fit in time: the fullest pack that takes the sample.
bool Filler::join(int sample, int level, int64_t height_ns) {
  auto& queue = by_time_[static_cast<size_t>(level)];
  const SampleCost& cost = table_.cost(sample, level);
  const auto time_of = [&](int p) { return packs_[static_cast<size_t>(p)].time_ns; };
  auto place = std::upper_bound(queue.begin(), queue.end(), height_ns - cost.marginal_ns,
                                [&](int64_t time, int p) { return time < time_of(p); });
  for (int tries = 0; place != queue.begin() && tries < kJoinTries; ++tries) {
    --place;
    Open& pack = packs_[static_cast<size_t>(*place)];
    if (pack.tokens + cost.tokens > table_.budget()) continue;
    if (table_.pack_ns(level, pack.tokens + cost.tokens, pack.attention_ns + cost.attention_ns) > height_ns) continue;
    append(pack, sample);
    const auto after =
        std::upper_bound(place + 1, queue.end(), pack.time_ns, [&](int64_t time, int p) { return time < time_of(p); });
    std::rotate(place, place + 1, after);
    return true;
  }
  return false;
}

// With no rank free: the position in `order`, from `at` on, of the first sample that some pack may still take. Shorter
// samples ask for less at every level, so each level is a binary search.
size_t Filler::next_candidate(std::span<const int> order, size_t at, int64_t height_ns) {
  if (room_is_stale_) {
    room_.assign(by_time_.size(), {});
    for (size_t level = 0; level < by_time_.size(); ++level) {
      for (const int p : by_time_[level]) {
        const Open& pack = packs_[static_cast<size_t>(p)];
        room_[level].tokens = std::max(room_[level].tokens, table_.budget() - pack.tokens);
        room_[level].time_ns = std::max(room_[level].time_ns, height_ns - pack.time_ns);
      }
    }
    room_is_stale_ = false;
  }
  size_t next = order.size();
  for (size_t level = 0; level < by_time_.size(); ++level) {
    if (by_time_[level].empty() || room_[level].tokens <= 0 || room_[level].time_ns <= 0) continue;
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(at);
    const auto last = order.begin() + static_cast<std::ptrdiff_t>(next);
    const int l = static_cast<int>(level);
    const auto found = std::partition_point(first, last, [&](int s) {
      const SampleCost& cost = table_.cost(s, l);
      return table_.need(s) > l || cost.tokens > room_[level].tokens || cost.marginal_ns > room_[level].time_ns;
    });
    next = static_cast<size_t>(found - order.begin());
  }
  return next;
}

Filler::Outcome Filler::fill(std::span<const int> order, int64_t height_ns, const FillRule& rule) {
  packs_.clear();
  left_.clear();
  for (auto& queue : by_time_) queue.clear();
  free_ranks_ = table_.lane();
  room_is_stale_ = true;
  Outcome outcome;
  for (size_t at = 0; at < order.size(); ++at) {
    if (free_ranks_ == 0) {
      const size_t next = next_candidate(order, at, height_ns);
      left_.insert(left_.end(), order.begin() + static_cast<std::ptrdiff_t>(at),
                   order.begin() + static_cast<std::ptrdiff_t>(next));
      at = next;
      if (at == order.size()) break;
    }
    if (place(order[at], height_ns, rule)) {
      outcome.work_ns += table_.work_ns(order[at]);
      ++outcome.placed;
      room_is_stale_ = true;
    } else {
      left_.push_back(order[at]);
    }
  }
  use_free_ranks(rule);
  for (const Open& pack : packs_) outcome.height_ns = std::max(outcome.height_ns, pack.time_ns);
  return outcome;
}

bool Filler::place(int sample, int64_t height_ns, const FillRule& rule) {
  const int first = std::max(table_.need(sample), rule.least_level);
  if (rule.open_first && open(sample, height_ns, rule)) return true;
  for (int level = first; level <= rule.most_level; ++level) {
    if (join(sample, level, height_ns)) return true;
    if (level == first && !rule.open_first && open(sample, height_ns, rule)) return true;
  }
  return false;
}

// Two packs of the same size, longest samples first to the lighter one. Rewrites the chain.
void Filler::halve(const Open& pack, Open& first, Open& second) {
  first = second = Open{};
  first.level = second.level = pack.level;
  for (int s = pack.head; s != -1;) {
    const int following = next_[static_cast<size_t>(s)];
    append(first.time_ns <= second.time_ns ? first : second, s);
    s = following;
  }
}

// One chain of two again, in order, as the chain of `whole`.
void Filler::join_chains(const Open& first, const Open& second, Open& whole) {
  int a = first.head, b = second.head;
  whole.head = whole.tail = -1;
  while (a != -1 || b != -1) {
    int& from = b == -1 || (a != -1 && a < b) ? a : b;
    const int sample = from;
    from = next_[static_cast<size_t>(sample)];
    if (whole.head == -1) {
      whole.head = sample;
    } else {
      next_[static_cast<size_t>(whole.tail)] = sample;
    }
    whole.tail = sample;
  }
  next_[static_cast<size_t>(whole.tail)] = -1;
}

Filler::Open Filler::doubled(const Open& pack) const {
  Open wide = pack;
  ++wide.level;
  wide.tokens = wide.attention_ns = 0;
  for (int s = pack.head; s != -1; s = next_[static_cast<size_t>(s)]) {
    wide.tokens += table_.cost(s, wide.level).tokens;
    wide.attention_ns += table_.cost(s, wide.level).attention_ns;
  }
  wide.time_ns = table_.pack_ns(wide.level, wide.tokens, wide.attention_ns);
  return wide;
}

// Ranks that no sample wanted help the slowest packs: each takes as many ranks again, as a second pack or a wider one.
void Filler::use_free_ranks(const FillRule& rule) {
  if (free_ranks_ == 0) return;
  using Entry = std::pair<int64_t, int>;  // time, pack
  std::priority_queue<Entry> slowest;
  for (size_t p = 0; p < packs_.size(); ++p) slowest.emplace(packs_[p].time_ns, static_cast<int>(p));
  while (free_ranks_ > 0 && !slowest.empty()) {
    const size_t p = static_cast<size_t>(slowest.top().second);
    slowest.pop();
    const Open pack = packs_[p];
    const int size = 1 << pack.level;
    if (size > free_ranks_) continue;
    Open wide = pack, first, second;
    if (pack.level < rule.most_level) wide = doubled(pack);
    const bool wide_fits = pack.count == 1 || wide.tokens <= table_.budget();  // pads grow with the size
    const bool may_widen = wide_fits && wide.time_ns < pack.time_ns;
    if (pack.count >= 2) {
      halve(pack, first, second);
      const int64_t halves_ns = std::max(first.time_ns, second.time_ns);
      if (!may_widen || halves_ns <= wide.time_ns) {
        packs_[p] = first;
        packs_.push_back(second);
        slowest.emplace(first.time_ns, static_cast<int>(p));
        slowest.emplace(second.time_ns, static_cast<int>(packs_.size()) - 1);
        free_ranks_ -= size;
        continue;
      }
      join_chains(first, second, wide);
    }
    if (!may_widen) continue;
    packs_[p] = wide;
    slowest.emplace(wide.time_ns, static_cast<int>(p));
    free_ranks_ -= size;
  }
}

Shelf Filler::take() const {
  Shelf shelf;
  for (const Open& open : packs_) {
    Pack pack{open.level, open.tokens, open.attention_ns, open.time_ns, {}};
    pack.samples.reserve(static_cast<size_t>(open.count));
    for (int s = open.head; s != -1; s = next_[static_cast<size_t>(s)]) pack.samples.push_back(s);
    shelf.packs.push_back(std::move(pack));
  }
  shelf.measure();
  return shelf;
}

std::vector<int> Filler::left_over() const {
  return left_;
}

Shelf fill_all(Filler& filler, const CostTable& table, std::span<const int> order, const FillRule& rule) {
  constexpr int kFills = 8;
  constexpr double kCloseEnough = 0.004;
  Shelf best;
  if (order.empty()) return best;
  double work = 0;
  int64_t low = 0, tokens = 0;
  for (const int s : order) {
    work += static_cast<double>(table.work_ns(s));
    tokens += table.length(s);
    low = std::max(low, table.least_alone_ns(s, rule.most_level));
  }
  if (tokens > table.budget() * table.lane()) return best;
  low = std::max(low, table.fixed_ns() + static_cast<int64_t>(work / table.lane()));
  int64_t high = 0;  // 0: none found
  int64_t height = low + low / 50;
  for (int i = 0; i < kFills; ++i) {
    const auto outcome = filler.fill(order, height, rule);
    if (outcome.placed == static_cast<int>(order.size())) {
      if (best.packs.empty() || outcome.height_ns < best.height_ns) best = filler.take();
      high = height;
    } else {
      low = height;
      if (high == 0 && i >= 3) break;
    }
    if (high > 0 && static_cast<double>(high - low) < kCloseEnough * static_cast<double>(high)) break;
    height = high > 0 ? low + (high - low) / 2 : low + low / 4 * (1 + i);
  }
  return best;
}

}  // namespace ringfold
