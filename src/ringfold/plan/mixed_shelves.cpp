// A step cut into micro-steps: at every shelf several heights are tried, the most efficient is kept.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ringfold/plan/mixed.h"

namespace ringfold {
namespace {

// Cuts a step shelf by shelf.
class ShelfCutter {
 public:
  ShelfCutter(Filler& filler, const CostTable& table, const ShelfVariant& variant)
      : filler_(filler), table_(table), variant_(variant), order_(static_cast<size_t>(table.samples())) {
    std::iota(order_.begin(), order_.end(), 0);
    for (const int s : order_) {
      work_ += static_cast<double>(table.work_ns(s));
      tokens_ += static_cast<double>(table.length(s));
    }
    first_count_ = steps_forced();
  }

  Shelves run(int64_t limit_ns) {
    Shelves shelves;
    int64_t spent = 0;
    while (!order_.empty()) {
      shelves.push_back(next_shelf(static_cast<int>(shelves.size())));
      spent += shelves.back().height_ns;
      if (spent + static_cast<int64_t>(work_ / table_.lane()) > limit_ns) return {};
    }
    return shelves;
  }

 private:
  int steps_forced() const {
    const double room = static_cast<double>(table_.lane()) * static_cast<double>(table_.budget()) * variant_.density;
    return std::max(1, static_cast<int>(std::ceil(tokens_ / room)));
  }

  // The sizes that a shelf may use: one rule, or one for each size that serves the tallest sample.
  std::vector<FillRule> rules() const {
    if (!variant_.one_size) return {variant_.rule};
    std::vector<FillRule> rules;
    for (int level = table_.need(order_.front()); level <= variant_.rule.most_level; ++level) {
      rules.push_back({level, level, variant_.rule.open_first});
    }
    return rules;
  }

  std::vector<int64_t> heights(const FillRule& rule, int steps_left) const {
    std::vector<int64_t> heights;
    const int tallest = order_.front();
    int64_t last = 0, least = 0;
    for (int level = std::max(table_.need(tallest), rule.least_level); level <= rule.most_level; ++level) {
      const int64_t alone = table_.cost(tallest, level).alone_ns;
      least = least == 0 ? alone : std::min(least, alone);
      if (last > 0 && static_cast<double>(alone) > 0.97 * static_cast<double>(last)) continue;
      heights.push_back(alone);
      if (variant_.rich) heights.push_back(alone + alone / 20);
      last = alone;
    }
    for (int k = steps_left; k <= steps_left + (variant_.rich ? 1 : 0); ++k) {
      const double even = work_ / (static_cast<double>(table_.lane()) * k) + static_cast<double>(table_.fixed_ns());
      for (const double slack : {1.01, 1.06}) {
        const auto height = static_cast<int64_t>(even * slack);
        if (height >= least) heights.push_back(height);
      }
    }
    return heights;
  }

  // What a shelf is worth: more is better.
  double value_of(int64_t height_ns, double work) const {
    const auto height = static_cast<double>(height_ns);
    return variant_.yield == 0 ? work / height : work / variant_.yield - height * table_.lane();
  }

  Shelf next_shelf(int made) {
    int steps_left = steps_forced();
    if (variant_.extra_steps >= 0) steps_left = std::max(steps_left, first_count_ + variant_.extra_steps - made);
    Shelf best;
    std::vector<int> best_left;
    double best_rate = 0;
    double best_work = 0;
    const auto keep = [&](int64_t height, double work, Shelf&& shelf, std::vector<int>&& left) {
      const double rate = value_of(height, work);
      if (!best.packs.empty() && (rate < best_rate || (rate == best_rate && height >= best.height_ns))) return;
      best = std::move(shelf);
      best_left = std::move(left);
      best_rate = rate;
      best_work = work;
    };
    for (const FillRule& rule : rules()) {
      for (const int64_t height : heights(rule, steps_left)) {
        const auto outcome = filler_.fill(order_, height, rule);
        const double work = static_cast<double>(outcome.work_ns);
        if (outcome.placed > 0 && (best.packs.empty() || value_of(outcome.height_ns, work) >= best_rate)) {
          keep(outcome.height_ns, work, filler_.take(), filler_.left_over());
        }
      }
      if (steps_left > 1) continue;
      Shelf all = fill_all(filler_, table_, order_, rule);
      if (!all.packs.empty()) keep(all.height_ns, work_, std::move(all), {});
    }
    order_ = std::move(best_left);
    work_ -= best_work;
    tokens_ = 0;
    for (const int s : order_) tokens_ += static_cast<double>(table_.length(s));
    return best;
  }

  Filler& filler_;
  const CostTable& table_;
  const ShelfVariant& variant_;
  std::vector<int> order_;
  double work_ = 0, tokens_ = 0;
  int first_count_ = 1;
};

}  // namespace

std::vector<ShelfVariant> shelf_variants(const CostTable& table) {
  const int lane = table.levels() - 1;
  return {{{0, lane, true}, 0, false, 0.92},
          {{0, table.node_level(), false}, -1, true, 0.98},
          {{0, table.static_level(), false}, 1, false, 0.98},
          {{0, lane, true}, 2, true, 0.98},
          {{0, table.static_level(), true}, -1, true, 0.98},
          {{0, lane, true}, 0, false, 0.98, true},
          {{0, lane, true}, 0, false, 0.98, false, 0.96}};
}

Shelves fill_shelves(Filler& filler, const CostTable& table, const ShelfVariant& variant, int64_t limit_ns) {
  return ShelfCutter(filler, table, variant).run(limit_ns);
}

}  // namespace ringfold
