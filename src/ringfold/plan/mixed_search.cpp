// Local search over lockstep plans: what a micro-step's slowest pack gives away lowers the step.
#include <algorithm>
#include <numeric>

#include "ringfold/plan/mixed.h"

namespace ringfold {
namespace {

struct Place {
  size_t shelf = 0, pack = 0;
};

enum class Kind { kNone, kMove, kSwap, kMerge };

struct Change {
  Kind kind = Kind::kNone;
  int64_t gain_ns = 0;
  Place to;
  size_t sample = 0;  // position in the slowest pack
  size_t other = 0;   // swap: position in the pack it goes to
};

class Search {
 public:
  Search(const CostTable& table, Shelves& shelves, int64_t budget)
      : table_(table), shelves_(shelves), budget_(budget) {}

  void run() {
    for (bool improved = true; improved && budget_ > 0;) {
      improved = false;
      for (size_t a = 0; a < shelves_.size() && budget_ > 0; ++a) {
        while (budget_ > 0 && improve_shelf(a)) improved = true;
      }
      std::erase_if(shelves_, [](const Shelf& shelf) { return shelf.packs.empty(); });
    }
  }

 private:
  bool improve_shelf(size_t a) {
    const Shelf& shelf = shelves_[a];
    if (shelf.packs.empty()) return false;
    slowest_ = {a, 0};
    for (size_t p = 1; p < shelf.packs.size(); ++p) {
      if (shelf.packs[p].time_ns > shelf.packs[slowest_.pack].time_ns) slowest_.pack = p;
    }
    second_ns_ = 0;
    for (size_t p = 0; p < shelf.packs.size(); ++p) {
      if (p != slowest_.pack) second_ns_ = std::max(second_ns_, shelf.packs[p].time_ns);
    }
    if (second_ns_ == shelf.height_ns) return false;
    best_ = {};
    for (size_t i = 0; i < slowest().samples.size() && budget_ > 0; ++i) try_sample(i);
    try_merges();
    if (best_.kind == Kind::kNone) return false;
    apply(best_);
    return true;
  }

  Pack& slowest() { return shelves_[slowest_.shelf].packs[slowest_.pack]; }

  void try_sample(size_t i) {
    const Pack& from = slowest();
    const int sample = from.samples[i];
    const SampleCost& own = table_.cost(sample, from.level);
    const int64_t rest_tokens = from.tokens - own.tokens;
    const int64_t rest_attention = from.attention_ns - own.attention_ns;
    const int64_t rest_ns = from.samples.size() == 1 ? 0 : table_.pack_ns(from.level, rest_tokens, rest_attention);
    const int64_t base_ns = shelves_[slowest_.shelf].height_ns;
    const int64_t most_drop = base_ns - std::max(second_ns_, rest_ns);
    if (most_drop <= best_.gain_ns) return;
    for (size_t b = 0; b < shelves_.size(); ++b) {
      const Shelf& shelf = shelves_[b];
      const bool same = b == slowest_.shelf;
      for (size_t p = 0; p < shelf.packs.size(); ++p) {
        const Pack& to = shelf.packs[p];
        if ((same && p == slowest_.pack) || to.level < table_.need(sample)) continue;
        const SampleCost& there = table_.cost(sample, to.level);
        --budget_;
        if (to.tokens + there.tokens <= table_.budget()) {
          const int64_t joined_ns =
              table_.pack_ns(to.level, to.tokens + there.tokens, to.attention_ns + there.attention_ns);
          consider(Kind::kMove, {b, p}, i, 0, rest_ns, joined_ns);
        }
        try_swaps(i, {b, p}, rest_tokens, rest_attention);
      }
    }
  }

  // With one of the three next shorter samples of the other pack.
  void try_swaps(size_t i, const Place& place, int64_t rest_tokens, int64_t rest_attention) {
    constexpr int kTries = 3;
    const Pack& from = slowest();
    const Pack& to = shelves_[place.shelf].packs[place.pack];
    const int sample = from.samples[i];
    const SampleCost& there = table_.cost(sample, to.level);
    auto other = std::upper_bound(to.samples.begin(), to.samples.end(), sample);
    for (int tries = 0; other != to.samples.end() && tries < kTries; ++other, ++tries) {
      const SampleCost& back = table_.cost(*other, from.level);
      const SampleCost& gone = table_.cost(*other, to.level);
      const int64_t tokens = to.tokens - gone.tokens + there.tokens;
      --budget_;
      if (tokens > table_.budget() && to.samples.size() > 1) continue;
      const int64_t new_from =
          table_.pack_ns(from.level, rest_tokens + back.tokens, rest_attention + back.attention_ns);
      const int64_t new_to = table_.pack_ns(to.level, tokens, to.attention_ns - gone.attention_ns + there.attention_ns);
      consider(Kind::kSwap, place, i, static_cast<size_t>(other - to.samples.begin()), new_from, new_to);
    }
  }

  void consider(Kind kind, const Place& to, size_t i, size_t other, int64_t from_ns, int64_t to_ns) {
    const int64_t base_ns = shelves_[slowest_.shelf].height_ns;
    const int64_t left_ns = std::max(second_ns_, from_ns);
    const int64_t gain_ns = to.shelf == slowest_.shelf
                                ? base_ns - std::max(left_ns, to_ns)
                                : base_ns - left_ns - std::max<int64_t>(0, to_ns - shelves_[to.shelf].height_ns);
    if (gain_ns > best_.gain_ns) best_ = {kind, gain_ns, to, i, other};
  }

  // The slowest pack and the fastest of its size, on the ranks of both.
  void try_merges() {
    const Shelf& shelf = shelves_[slowest_.shelf];
    const Pack& from = slowest();
    if (from.level + 1 >= table_.levels()) return;
    size_t mate = shelf.packs.size();
    for (size_t p = 0; p < shelf.packs.size(); ++p) {
      if (p == slowest_.pack || shelf.packs[p].level != from.level) continue;
      if (mate == shelf.packs.size() || shelf.packs[p].time_ns < shelf.packs[mate].time_ns) mate = p;
    }
    if (mate == shelf.packs.size()) return;
    const Pack merged = merge(from, shelf.packs[mate]);
    --budget_;
    const int64_t gain_ns = shelf.height_ns - std::max(second_ns_, merged.time_ns);
    if (merged.tokens <= table_.budget() && gain_ns > best_.gain_ns) {
      best_ = {Kind::kMerge, gain_ns, {slowest_.shelf, mate}, 0, 0};
    }
  }

  Pack merge(const Pack& a, const Pack& b) const {
    std::vector<int> samples(a.samples.size() + b.samples.size());
    std::merge(a.samples.begin(), a.samples.end(), b.samples.begin(), b.samples.end(), samples.begin());
    return pack_of(table_, a.level + 1, std::move(samples));
  }

  void apply(const Change& change) {
    Shelf& from_shelf = shelves_[slowest_.shelf];
    Shelf& to_shelf = shelves_[change.to.shelf];
    Pack& from = from_shelf.packs[slowest_.pack];
    Pack& to = to_shelf.packs[change.to.pack];
    if (change.kind == Kind::kMerge) {
      from = merge(from, to);
      to.samples.clear();
    } else {
      const int sample = from.samples[change.sample];
      from.samples.erase(from.samples.begin() + static_cast<std::ptrdiff_t>(change.sample));
      if (change.kind == Kind::kSwap) {
        const int back = to.samples[change.other];
        to.samples.erase(to.samples.begin() + static_cast<std::ptrdiff_t>(change.other));
        from.samples.insert(std::upper_bound(from.samples.begin(), from.samples.end(), back), back);
      }
      to.samples.insert(std::upper_bound(to.samples.begin(), to.samples.end(), sample), sample);
      from = pack_of(table_, from.level, std::move(from.samples));
      to = pack_of(table_, to.level, std::move(to.samples));
    }
    for (Shelf* shelf : {&from_shelf, &to_shelf}) {
      std::erase_if(shelf->packs, [](const Pack& pack) { return pack.samples.empty(); });
      shelf->measure();
    }
  }

  const CostTable& table_;
  Shelves& shelves_;
  int64_t budget_;
  Place slowest_;
  int64_t second_ns_ = 0;  // of the other packs of its shelf
  Change best_;
};

// Puts the sample where the sum of heights rises least; ties: where most time is left. False if nothing takes it.
bool insert(const CostTable& table, Shelves& shelves, int sample) {
  Pack* best = nullptr;
  Shelf* best_shelf = nullptr;
  int64_t best_rise = 0, best_slack = 0;
  for (Shelf& shelf : shelves) {
    for (Pack& pack : shelf.packs) {
      if (pack.level < table.need(sample)) continue;
      const SampleCost& cost = table.cost(sample, pack.level);
      if (pack.tokens + cost.tokens > table.budget()) continue;
      const int64_t time_ns =
          table.pack_ns(pack.level, pack.tokens + cost.tokens, pack.attention_ns + cost.attention_ns);
      const int64_t rise = std::max<int64_t>(0, time_ns - shelf.height_ns);
      const int64_t slack = shelf.height_ns - time_ns;
      if (best != nullptr && (rise > best_rise || (rise == best_rise && slack <= best_slack))) continue;
      best = &pack, best_shelf = &shelf, best_rise = rise, best_slack = slack;
    }
  }
  if (best == nullptr) return false;
  best->samples.insert(std::upper_bound(best->samples.begin(), best->samples.end(), sample), sample);
  *best = pack_of(table, best->level, std::move(best->samples));
  best_shelf->height_ns = std::max(best_shelf->height_ns, best->time_ns);
  return true;
}

std::vector<int> samples_of(const Shelf& shelf) {
  std::vector<int> samples;
  for (const Pack& pack : shelf.packs) samples.insert(samples.end(), pack.samples.begin(), pack.samples.end());
  std::sort(samples.begin(), samples.end());
  return samples;
}

// The shelves without one, whose samples the others take.
bool spread(const CostTable& table, Shelves& shelves, size_t removed) {
  constexpr int64_t kBudget = 50'000;
  Shelves fewer = shelves;
  fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(removed));
  for (const int sample : samples_of(shelves[removed])) {
    if (!insert(table, fewer, sample)) return false;
  }
  improve(table, fewer, kBudget);
  if (total_ns(fewer) >= total_ns(shelves)) return false;
  shelves = std::move(fewer);
  return true;
}

// Two shelves as one.
bool unite(Filler& filler, const CostTable& table, Shelves& shelves, size_t a, size_t b) {
  std::vector<int> both = samples_of(shelves[a]);
  const std::vector<int> more = samples_of(shelves[b]);
  both.insert(both.end(), more.begin(), more.end());
  std::sort(both.begin(), both.end());
  Shelf one = fill_all(filler, table, both, {0, table.levels() - 1, true});
  if (one.packs.empty() || one.height_ns >= shelves[a].height_ns + shelves[b].height_ns) return false;
  shelves[a] = std::move(one);
  shelves.erase(shelves.begin() + static_cast<std::ptrdiff_t>(b));
  return true;
}

}  // namespace

void improve(const CostTable& table, Shelves& shelves, int64_t budget) {
  Search(table, shelves, budget).run();
}

bool dissolve(Filler& filler, const CostTable& table, Shelves& shelves) {
  constexpr size_t kLowest = 3, kPartners = 4;
  std::vector<size_t> by_height(shelves.size());
  std::iota(by_height.begin(), by_height.end(), size_t{0});
  std::stable_sort(by_height.begin(), by_height.end(),
                   [&](size_t a, size_t b) { return shelves[a].height_ns < shelves[b].height_ns; });
  if (shelves.size() < 2) return false;
  for (size_t i = 0; i < std::min(kLowest, by_height.size()); ++i) {
    if (spread(table, shelves, by_height[i])) return true;
    for (size_t j = 0; j < std::min(kPartners + 1, by_height.size()); ++j) {
      if (j != i && unite(filler, table, shelves, by_height[i], by_height[j])) return true;
    }
  }
  return false;
}

}  // namespace ringfold
