// Plans for free execution: aligned blocks of ranks, widest first. Both halves of a block are equally loaded when it is
// done, so the narrower blocks inside it start without a gap.
#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

#include "ringfold/plan/mixed.h"

namespace ringfold {
namespace {

// A block of 2^level ranks while it is filled.
struct Block {
  int64_t start_ns = 0;      // load of the block around it
  int64_t load_ns = 0;       // with its own packs
  std::vector<int> samples;  // longest first
  std::vector<Pack> packs;
};

// Best-fit decreasing under the budget.
std::vector<Pack> pack_samples(const CostTable& table, int level, const std::vector<int>& samples) {
  std::vector<Pack> packs;
  for (const int s : samples) {
    const SampleCost& cost = table.cost(s, level);
    Pack* best = nullptr;
    for (Pack& pack : packs) {
      if (pack.tokens + cost.tokens > table.budget()) continue;
      if (best == nullptr || pack.tokens > best->tokens) best = &pack;
    }
    if (best == nullptr) {
      packs.push_back({level, 0, 0, 0, {}});
      best = &packs.back();
    }
    best->samples.push_back(s);
    best->tokens += cost.tokens;
    best->attention_ns += cost.attention_ns;
  }
  for (Pack& pack : packs) pack.time_ns = table.pack_ns(level, pack.tokens, pack.attention_ns);
  return packs;
}

int64_t queue_ns(const std::vector<Pack>& packs) {
  int64_t total = 0;
  for (const Pack& pack : packs) total += pack.time_ns;
  return total;
}

// All blocks of one level.
class LevelFill {
 public:
  LevelFill(const CostTable& table, int level, std::vector<int64_t> starts) : table_(table), level_(level) {
    for (const int64_t start : starts) blocks_.push_back({start, start, {}, {}});
  }

  void deal(const std::vector<int>& samples) {
    using Entry = std::pair<int64_t, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> lightest;
    for (size_t b = 0; b < blocks_.size(); ++b) lightest.emplace(blocks_[b].start_ns, static_cast<int>(b));
    for (const int s : samples) {
      auto [load, b] = lightest.top();
      lightest.pop();
      blocks_[static_cast<size_t>(b)].samples.push_back(s);
      lightest.emplace(load + weight(s), b);
    }
    for (Block& block : blocks_) repack(block);
  }

  // Moves or swaps samples between the busiest block and the lightest ones while the busiest falls.
  void repair() {
    if (blocks_.size() < 2) return;
    for (size_t tries = 4 * blocks_.size() + 20; tries > 0; --tries) {
      const size_t busiest =
          static_cast<size_t>(std::max_element(blocks_.begin(), blocks_.end(), less_loaded) - blocks_.begin());
      if (!relieve(busiest)) return;
    }
  }

  const std::vector<Block>& blocks() const { return blocks_; }
  std::vector<Block> take() { return std::move(blocks_); }

 private:
  static bool less_loaded(const Block& a, const Block& b) { return a.load_ns < b.load_ns; }

  // What a sample is expected to add to a block: its share of a pack's fixed time, half of what its hops cost alone.
  int64_t weight(int s) const {
    const SampleCost& cost = table_.cost(s, level_);
    const int64_t exposed = cost.alone_ns - table_.fixed_ns() - cost.marginal_ns;
    return cost.marginal_ns + table_.fixed_ns() * cost.tokens / table_.budget() + exposed / 2;
  }

  void repack(Block& block) const {
    block.packs = pack_samples(table_, level_, block.samples);
    block.load_ns = block.start_ns + queue_ns(block.packs);
  }

  bool relieve(size_t busiest) {
    constexpr size_t kPartners = 4;
    std::vector<size_t> partners;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      if (b != busiest) partners.push_back(b);
    }
    const size_t count = std::min(kPartners, partners.size());
    std::partial_sort(
        partners.begin(), partners.begin() + static_cast<std::ptrdiff_t>(count), partners.end(),
        [&](size_t a, size_t b) { return std::pair(blocks_[a].load_ns, a) < std::pair(blocks_[b].load_ns, b); });
    for (size_t i = 0; i < count; ++i) {
      if (exchange(blocks_[busiest], blocks_[partners[i]])) return true;
    }
    return false;
  }

  // The sample, or pair of samples, whose weight is nearest to half the difference; kept if the larger load falls.
  bool exchange(Block& busy, Block& light) const {
    const int64_t gap = busy.load_ns - light.load_ns;
    if (gap <= 1) return false;
    int64_t best_miss = gap / 2;  // of a change that does nothing
    int given = -1, taken = -1;
    for (const int s : busy.samples) {
      const int64_t own = weight(s);
      // Lighter samples come later: the partner for a swap by binary search.
      const auto consider = [&](int64_t moved, int back) {
        const int64_t miss = std::abs(moved - gap / 2);
        if (miss < best_miss) best_miss = miss, given = s, taken = back;
      };
      consider(own, -1);
      const auto at = std::partition_point(light.samples.begin(), light.samples.end(),
                                           [&](int other) { return own - weight(other) < gap / 2; });
      if (at != light.samples.end()) consider(own - weight(*at), *at);
      if (at != light.samples.begin()) consider(own - weight(*(at - 1)), *(at - 1));
    }
    if (given == -1) return false;
    Block new_busy = busy, new_light = light;
    std::erase(new_busy.samples, given);
    if (taken != -1) {
      std::erase(new_light.samples, taken);
      new_busy.samples.insert(std::upper_bound(new_busy.samples.begin(), new_busy.samples.end(), taken), taken);
    }
    new_light.samples.insert(std::upper_bound(new_light.samples.begin(), new_light.samples.end(), given), given);
    repack(new_busy);
    repack(new_light);
    if (std::max(new_busy.load_ns, new_light.load_ns) >= busy.load_ns) return false;
    busy = std::move(new_busy);
    light = std::move(new_light);
    return true;
  }

  const CostTable& table_;
  int level_;
  std::vector<Block> blocks_;
};

// Loads that the blocks of a level inherit from the level above; ranks beyond its last whole block start empty.
std::vector<int64_t> starts_of(const CostTable& table, int level, const std::vector<int64_t>& above) {
  std::vector<int64_t> starts(static_cast<size_t>(table.lane() >> level), 0);
  for (size_t b = 0; b < starts.size(); ++b) {
    if (b / 2 < above.size()) starts[b] = above[b / 2];
  }
  return starts;
}

// The block with the highest load at the narrowest level: its chain of blocks sets the time.
size_t busiest_rank(const CostTable& table, const NestedPlan& plan) {
  std::vector<int64_t> load(static_cast<size_t>(table.lane()), 0);
  for (size_t level = 0; level < plan.at.size(); ++level) {
    for (size_t b = 0; b < plan.at[level].size(); ++b) {
      const int64_t queue = queue_ns(plan.at[level][b]);
      for (size_t r = b << level; r < (b + 1) << level; ++r) load[r] += queue;
    }
  }
  return static_cast<size_t>(std::max_element(load.begin(), load.end()) - load.begin());
}

std::vector<int> samples_on(const NestedPlan& plan, size_t rank) {
  std::vector<int> samples;
  for (size_t level = 0; level < plan.at.size(); ++level) {
    if (rank >> level >= plan.at[level].size()) continue;
    for (const Pack& pack : plan.at[level][rank >> level]) {
      samples.insert(samples.end(), pack.samples.begin(), pack.samples.end());
    }
  }
  return samples;
}

}  // namespace

NestedPlan nest(const CostTable& table, const std::vector<int>& levels) {
  NestedPlan plan;
  plan.levels = levels;
  plan.at.resize(static_cast<size_t>(table.levels()));
  std::vector<std::vector<int>> samples(static_cast<size_t>(table.levels()));
  for (int s = 0; s < table.samples(); ++s) samples[static_cast<size_t>(levels[static_cast<size_t>(s)])].push_back(s);
  std::vector<int64_t> loads;
  for (int level = table.levels() - 1; level >= 0; --level) {
    std::vector<int64_t> starts = starts_of(table, level, loads);
    const auto& own = samples[static_cast<size_t>(level)];
    auto& at = plan.at[static_cast<size_t>(level)];
    at.resize(starts.size());
    if (own.empty()) {
      loads = std::move(starts);
    } else {
      LevelFill fill(table, level, std::move(starts));
      fill.deal(own);
      fill.repair();
      loads.clear();
      std::vector<Block> blocks = fill.take();
      for (size_t b = 0; b < blocks.size(); ++b) {
        loads.push_back(blocks[b].load_ns);
        at[b] = std::move(blocks[b].packs);
      }
    }
    for (const int64_t load : loads) plan.time_ns = std::max(plan.time_ns, load);
  }
  return plan;
}

std::vector<int> levels_within(const CostTable& table, double share, int most_level) {
  const auto limit =
      static_cast<int64_t>(share * static_cast<double>(std::max(table.compute_bound_ns(), table.longest_bound_ns())));
  std::vector<int> levels;
  for (int s = 0; s < table.samples(); ++s) {
    int level = table.need(s);
    int64_t alone = table.cost(s, level).alone_ns;
    for (int next = level + 1; next <= most_level && alone > limit; ++next) {
      const int64_t wider = table.cost(s, next).alone_ns;
      if (wider > limit && static_cast<double>(wider) > 0.97 * static_cast<double>(alone)) continue;
      level = next;
      alone = wider;
    }
    levels.push_back(level);
  }
  return levels;
}

NestedPlan best_nested(const CostTable& table) {
  constexpr double kShares[] = {3, 1, 0.8, 0.6, 0.45, 0.3};
  std::vector<std::vector<int>> tried;
  NestedPlan best;
  for (const int most : {table.node_level(), table.levels() - 1, table.static_level()}) {
    for (const double share : kShares) {
      std::vector<int> levels = levels_within(table, share, most);
      if (std::find(tried.begin(), tried.end(), levels) != tried.end()) continue;
      NestedPlan plan = nest(table, levels);
      tried.push_back(std::move(levels));
      if (best.levels.empty() || plan.time_ns < best.time_ns) best = std::move(plan);
    }
  }
  return best;
}

void escalate(const CostTable& table, NestedPlan& plan, int tries) {
  constexpr size_t kCandidates = 3;
  for (bool improved = true; improved;) {
    improved = false;
    std::vector<int> chain = samples_on(plan, busiest_rank(table, plan));
    const auto alone = [&](int s) { return table.cost(s, plan.levels[static_cast<size_t>(s)]).alone_ns; };
    std::sort(chain.begin(), chain.end(),
              [&](int a, int b) { return alone(a) != alone(b) ? alone(a) > alone(b) : a < b; });
    std::vector<std::pair<int, int>> changes;  // sample, new level
    for (const int s : chain) {
      if (changes.size() == kCandidates) break;
      const int level = plan.levels[static_cast<size_t>(s)];
      if (level + 1 < table.levels()) changes.emplace_back(s, level + 1);
    }
    size_t lowered = 0;
    for (auto s = chain.rbegin(); s != chain.rend() && lowered < kCandidates; ++s) {
      const int level = plan.levels[static_cast<size_t>(*s)];
      if (level > table.need(*s)) changes.emplace_back(*s, level - 1), ++lowered;
    }
    for (const auto& [sample, level] : changes) {
      if (tries-- <= 0) return;
      std::vector<int> levels = plan.levels;
      levels[static_cast<size_t>(sample)] = level;
      NestedPlan changed = nest(table, levels);
      if (changed.time_ns >= plan.time_ns) continue;
      plan = std::move(changed);
      improved = true;
      break;
    }
  }
}

}  // namespace ringfold
