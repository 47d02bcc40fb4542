// The `mixed` policy as a list of named passes over one state: the best plan so far.
#include "ringfold/plan/mixed.h"

#include <algorithm>
#include <cmath>

#include "ringfold/base/error.h"
#include "ringfold/plan/passes.h"

namespace ringfold {
namespace {

// Sizes up to which more is tried: beyond them a step is long enough for little to be left.
constexpr int kPolishAll = 64, kPolishTwo = 256, kAllSizesMixed = 1024, kTwoVariants = 8192;

int64_t ns_of(double us) {
  return std::llround(us * 1e3);
}

class MixedPlanner {
 public:
  MixedPlanner(const PackInput& input, Execution execution, const PassControl& control, const DraftCheck& check)
      : input_(input), execution_(execution), control_(control), check_(check), table_(input), filler_(table_) {}

  Draft run() {
    if (execution_ == Execution::kLockstep) {
      pass("greedy", [&] { return greedy(); });
      pass("variants", [&] { return variants(); });
      pass("search", [&] { return search(); });
      pass("dissolve", [&] { return remove_steps(); });
    } else {
      pass("nested", [&] { return nested(); });
      pass("escalate", [&] { return raise_sizes(); });
      pass("shelves", [&] { return shelves_in_queues(); });
    }
    pass("baselines", [&] { return baselines(); });
    if (best_.empty()) {
      throw UsageError(
          "[plan] every pass that makes a plan is switched off: got none, expected at least one of greedy, variants, "
          "nested, shelves, baselines. Hint: switch fewer passes off.");
    }
    return std::move(best_);
  }

 private:
  // A pass works on its own state and returns its plan, or nothing; the better plan is kept.
  template <typename Body>
  void pass(std::string_view name, Body&& body) {
    if (!control_.runs(name)) return;
    Draft draft = body();
    if (!draft.empty()) keep(std::move(draft));
    if (control_.after) control_.after(name, static_cast<double>(best_ns_) / 1e3);
    if (check_ && !best_.empty()) check_(name, best_);
  }

  void keep(Draft draft) {
    const int64_t time_ns = ns_of(execution_us(input_, draft, execution_));
    if (!best_.empty() && time_ns >= best_ns_) return;
    best_ = std::move(draft);
    best_ns_ = time_ns;
  }

  // --- Lockstep ---

  Draft greedy() {
    pool_.push_back(fill_shelves(filler_, table_, shelf_variants(table_)[0], no_limit()));
    return to_draft(table_, pool_[0]);
  }

  Draft variants() {
    const auto all = shelf_variants(table_);
    const int n = table_.samples();
    const size_t count = n <= kPolishTwo       ? all.size()
                         : n <= kAllSizesMixed ? all.size() - 2
                         : n <= kTwoVariants   ? 2
                                               : 1;
    for (size_t v = 1; v < count; ++v) {
      Shelves shelves = fill_shelves(filler_, table_, all[v], abandon_limit());
      if (!shelves.empty()) pool_.push_back(std::move(shelves));
    }
    if (pool_.empty()) return {};
    std::stable_sort(pool_.begin(), pool_.end(),
                     [](const Shelves& a, const Shelves& b) { return total_ns(a) < total_ns(b); });
    const size_t kept = table_.samples() <= kPolishAll ? pool_.size() : table_.samples() <= kPolishTwo ? 2 : 1;
    pool_.resize(std::min(kept, pool_.size()));
    return to_draft(table_, pool_[0]);
  }

  Draft search() {
    for (Shelves& shelves : pool_) improve(table_, shelves, 200'000);
    return least_of_pool();
  }

  Draft remove_steps() {
    constexpr int kRounds = 4;
    for (Shelves& shelves : pool_) {
      for (int round = 0; round < kRounds && dissolve(filler_, table_, shelves); ++round) {
        improve(table_, shelves, 100'000);
      }
    }
    return least_of_pool();
  }

  Draft least_of_pool() const {
    const auto least = std::min_element(pool_.begin(), pool_.end(),
                                        [](const Shelves& a, const Shelves& b) { return total_ns(a) < total_ns(b); });
    return least == pool_.end() ? Draft{} : to_draft(table_, *least);
  }

  static int64_t no_limit() { return INT64_MAX / 2; }
  // A variant this much above the best is not worth ending; small steps keep them all for the search.
  int64_t abandon_limit() const {
    if (best_.empty() || table_.samples() <= kPolishAll) return no_limit();
    return best_ns_ + best_ns_ / 50;
  }

  // --- Free ---

  Draft nested() {
    nested_ = best_nested(table_);
    return to_draft(table_, nested_);
  }

  Draft raise_sizes() {
    constexpr int kTries = 24;
    if (nested_.levels.empty() || near_bound(1.003)) return {};
    escalate(table_, nested_, kTries);
    return to_draft(table_, nested_);
  }

  // Few samples: the lockstep plan without its barriers, and its CP sizes in nested blocks.
  Draft shelves_in_queues() {
    if (table_.samples() >= 8 * table_.lane() || near_bound(1.01)) return {};
    greedy();
    variants();
    search();
    remove_steps();
    for (const Shelves& shelves : pool_) {
      keep(to_draft(table_, shelves));
      std::vector<int> levels(static_cast<size_t>(table_.samples()));
      for (const Shelf& shelf : shelves) {
        for (const Pack& pack : shelf.packs) {
          for (const int s : pack.samples) levels[static_cast<size_t>(s)] = pack.level;
        }
      }
      keep(to_draft(table_, nest(table_, levels)));
    }
    return {};
  }

  bool near_bound(double factor) const {
    return !best_.empty() && static_cast<double>(best_ns_) <= factor * static_cast<double>(table_.free_bound_ns());
  }

  // --- Both ---

  // The other policies, so that this one is never predicted slower: static at every size that holds the longest
  // sample, balanced by work, unless its work alone takes longer; static by tokens; uniform.
  Draft baselines() {
    const int longest_need = table_.samples() > 0 ? table_.need(0) : 0;
    for (int level = longest_need; level < table_.levels(); ++level) {
      PackInput sized = input_;
      sized.max_cp = 1 << level;
      if (table_.lane() % sized.max_cp != 0 || !may_win(level)) continue;
      sized.dp = table_.lane() / sized.max_cp;
      keep(static_by_work(sized));
      if (level == table_.static_level()) keep(static_by_tokens(sized));
    }
    keep(uniform(input_));
    return {};
  }

  bool may_win(int level) const {
    double work = 0;
    for (int s = 0; s < table_.samples(); ++s) work += static_cast<double>(table_.cost(s, level).marginal_ns);
    return best_.empty() || work * (1 << level) / table_.lane() < static_cast<double>(best_ns_);
  }

  const PackInput& input_;
  Execution execution_;
  const PassControl& control_;
  const DraftCheck& check_;
  CostTable table_;
  Filler filler_;
  std::vector<Shelves> pool_;
  NestedPlan nested_;
  Draft best_;
  int64_t best_ns_ = 0;
};

}  // namespace

bool PassControl::runs(std::string_view pass) const {
  return std::find(off.begin(), off.end(), pass) == off.end();
}

const std::vector<std::string>& pass_names() {
  static const std::vector<std::string> names = {"greedy", "variants", "search",  "dissolve",
                                                 "nested", "escalate", "shelves", "baselines"};
  return names;
}

Draft to_draft(const CostTable& table, const Shelves& shelves) {
  Draft draft;
  for (const Shelf& shelf : shelves) {
    // Widest first from the left: every start is a multiple of its size.
    std::vector<const Pack*> packs;
    for (const Pack& pack : shelf.packs) packs.push_back(&pack);
    std::stable_sort(packs.begin(), packs.end(), [](const Pack* a, const Pack* b) { return a->level > b->level; });
    DraftStep step;
    int rank = 0;
    for (const Pack* pack : packs) {
      DraftGroup group{rank, 1 << pack->level, {}};
      for (const int s : pack->samples) group.items.push_back(table.item(s));
      rank += group.cp_size;
      step.push_back(std::move(group));
    }
    draft.push_back(std::move(step));
  }
  return draft;
}

Draft to_draft(const CostTable& table, const NestedPlan& plan) {
  // Global order: widest level first, then block, then pack. Each entry of the draft takes what can run side by side.
  Draft draft;
  std::vector<size_t> next_entry(static_cast<size_t>(table.lane()), 0);
  for (int level = table.levels() - 1; level >= 0; --level) {
    const auto& blocks = plan.at[static_cast<size_t>(level)];
    for (size_t b = 0; b < blocks.size(); ++b) {
      const size_t first = b << level;
      for (const Pack& pack : blocks[b]) {
        size_t entry = 0;
        for (size_t r = first; r < first + (size_t{1} << level); ++r) entry = std::max(entry, next_entry[r]);
        for (size_t r = first; r < first + (size_t{1} << level); ++r) next_entry[r] = entry + 1;
        if (entry == draft.size()) draft.emplace_back();
        DraftGroup group{static_cast<int>(first), 1 << level, {}};
        for (const int s : pack.samples) group.items.push_back(table.item(s));
        draft[entry].push_back(std::move(group));
      }
    }
  }
  return draft;
}

Draft mixed(const PackInput& input, Execution execution, const PassControl& control, const DraftCheck& check) {
  return MixedPlanner(input, execution, control, check).run();
}

}  // namespace ringfold
