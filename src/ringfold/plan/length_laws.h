// Sample lengths drawn from seeded laws, the workloads of benchmarks and simulations. The same seed gives the same
// lengths on every machine: own generator, no <random> distributions. Facts behind the laws:
// docs/benchmarks/planner.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringfold {

enum class LengthLaw {
  kMultimodal,  // mm: images, prompt text and responses of a multimodal set; up to 32,768
  kRollouts,    // rl: RL rollouts, groups of 8 share prompt and difficulty; capped at 32,768
  kRollouts64,  // rl8: the same, capped at 65,536
  kWikipedia,   // wiki: article lengths with a Pareto tail; up to 65,536
  kProLong,     // prolong: long-context training documents; up to 65,536
  kMoon,        // moon: conversations of a serving trace, quantiles of the Mooncake trace; up to 126,195
  kMegatron,    // mega: lognormal of mean 1024 and sigma 1.5 in 128 .. 8192
};

struct LengthLawInfo {
  LengthLaw law;
  std::string_view name;
  std::string_view about;
  int64_t longest_tokens;  // no sample is longer
  int64_t budget_tokens;   // the budget a GPU at which the law is usually run
};

const std::vector<LengthLawInfo>& length_laws();
const LengthLawInfo& info_of(LengthLaw law);

// `count` lengths. Throws nothing; count 0 gives none.
std::vector<int64_t> draw_lengths(LengthLaw law, uint64_t seed, int64_t count);
// Samples until their tokens reach `tokens`, the last one kept: "so many full packs".
std::vector<int64_t> draw_tokens(LengthLaw law, uint64_t seed, int64_t tokens);

}  // namespace ringfold
