#include "ringfold/plan/length_laws.h"

#include <algorithm>
#include <cmath>

#include "ringfold/base/error.h"
#include "ringfold/plan/seeded_random.h"

namespace ringfold {
namespace {

int64_t whole(double tokens) {
  return std::llround(tokens);
}

int64_t image_tokens(SeededRandom& random) {
  constexpr double kSpread = 0.45, kCorrelation = 0.6, kPatch = 32;
  const double shared = random.normal();
  const double other = kCorrelation * shared + std::sqrt(1 - kCorrelation * kCorrelation) * random.normal();
  const auto side = [&](double mean, double z) {
    const double pixels = std::exp(std::log(mean) - kSpread * kSpread / 2 + kSpread * z);
    return std::max<int64_t>(1, whole(std::clamp(pixels, 56.0, 4096.0) / kPatch));
  };
  return side(673, shared) * side(841, other);
}

int images_of_sample(SeededRandom& random) {
  const double kind = random.uniform();
  if (kind < 0.5) return 1 + random.binomial(2, 0.45);
  if (kind < 0.9) return 4 + random.binomial(4, 0.40);
  return 9 + std::min(random.geometric(4.5), 23);
}

int64_t multimodal(SeededRandom& random) {
  constexpr int64_t kLongest = 32768, kLongestPrompt = 28672, kTemplate = 20, kAroundImage = 2;
  int64_t prompt = 0;
  do {
    prompt = kTemplate + whole(std::clamp(random.lognormal(std::log(120), 0.9), 16.0, 4096.0));
    for (int images = images_of_sample(random); images > 0; --images) prompt += image_tokens(random) + kAroundImage;
  } while (prompt > kLongestPrompt);
  const double kind = random.uniform();
  const double response = kind < 0.80   ? random.lognormal(std::log(450), 0.7)
                          : kind < 0.97 ? random.lognormal(std::log(2000), 0.6)
                                        : random.lognormal(std::log(9000), 0.5);
  return prompt + std::clamp<int64_t>(whole(response), 1, kLongest - prompt);
}

// A body, and a Pareto tail that holds `tail_share` of the samples from `tail_from` on.
int64_t body_and_tail(SeededRandom& random, double ln_mean, double ln_std, double floor, double tail_share,
                      double tail_from, double alpha, int64_t longest) {
  double tokens = 0;
  if (random.chance(tail_share)) {
    tokens = random.pareto(tail_from, alpha);
  } else {
    do {
      tokens = random.lognormal(ln_mean, ln_std);
    } while (tokens > tail_from);
  }
  return std::clamp<int64_t>(whole(std::min(std::max(tokens, floor), 1e12)), 1, longest);
}

// Piecewise log-linear through quantiles of the trace.
int64_t moon(SeededRandom& random) {
  struct Quantile {
    double share, tokens;
  };
  static constexpr Quantile kQuantiles[] = {
      {0, 895},      {0.01, 927},    {0.05, 1120},  {0.10, 1343},    {0.20, 2038},    {0.30, 3635},
      {0.40, 5291},  {0.50, 7255},   {0.60, 9886},  {0.70, 13574},   {0.80, 18246},   {0.90, 27723},
      {0.95, 40056}, {0.975, 59489}, {0.99, 85858}, {0.995, 101102}, {0.999, 121912}, {1, 126195}};
  const double u = random.uniform();
  size_t hi = 1;
  while (kQuantiles[hi].share < u) ++hi;
  const Quantile& a = kQuantiles[hi - 1];
  const Quantile& b = kQuantiles[hi];
  const double t = (u - a.share) / (b.share - a.share);
  return whole(a.tokens * std::pow(b.tokens / a.tokens, t));
}

class Sampler {
 public:
  Sampler(LengthLaw law, uint64_t seed) : law_(law), random_(seed), longest_(info_of(law).longest_tokens) {}

  int64_t next() {
    switch (law_) {
      case LengthLaw::kMultimodal:
        return multimodal(random_);
      case LengthLaw::kRollouts:
      case LengthLaw::kRollouts64:
        return rollout();
      case LengthLaw::kWikipedia:
        return body_and_tail(random_, 5.95, 1.26, 1, 0.01, 11000, 1.9, longest_);
      case LengthLaw::kProLong:
        return body_and_tail(random_, 7.68, 0.74, 575, 0.01, 16000, 2.2, longest_);
      case LengthLaw::kMoon:
        return moon(random_);
      case LengthLaw::kMegatron:
        return std::clamp<int64_t>(whole(random_.lognormal(std::log(1024) - 1.5 * 1.5 / 2, 1.5)), 128, longest_);
    }
    RINGFOLD_ASSERT(false, "every law is listed");
    return 0;
  }

 private:
  // Groups of 8 share the prompt and how hard it is.
  int64_t rollout() {
    constexpr int kGroup = 8;
    if (drawn_++ % kGroup == 0) {
      prompt_ = std::clamp<int64_t>(whole(random_.lognormal(5.5, 0.6)), 1, 4096);
      difficulty_ = 0.6 * random_.normal();
    }
    const double ln = random_.chance(0.75) ? 7.2 + 0.8 * random_.normal() : 9.2 + 0.6 * random_.normal();
    const double response = std::exp(std::min(ln + difficulty_, 20.0));
    return prompt_ + std::clamp<int64_t>(whole(response), 1, longest_ - prompt_);
  }

  LengthLaw law_;
  SeededRandom random_;
  int64_t longest_, drawn_ = 0, prompt_ = 0;
  double difficulty_ = 0;
};

}  // namespace

const std::vector<LengthLawInfo>& length_laws() {
  static const std::vector<LengthLawInfo> laws = {
      {LengthLaw::kMultimodal, "mm", "images, prompt text and responses of a multimodal set", 32768, 8192},
      {LengthLaw::kRollouts, "rl", "RL rollouts in groups of 8, capped at 32,768", 32768, 8192},
      {LengthLaw::kRollouts64, "rl8", "RL rollouts in groups of 8, capped at 65,536", 65536, 8192},
      {LengthLaw::kWikipedia, "wiki", "Wikipedia articles: lognormal with a Pareto tail", 65536, 8192},
      {LengthLaw::kProLong, "prolong", "long-context documents: lognormal with a Pareto tail", 65536, 8192},
      {LengthLaw::kMoon, "moon", "long conversations, quantiles of the Mooncake trace", 126195, 32768},
      {LengthLaw::kMegatron, "mega", "lognormal of mean 1024, sigma 1.5, in 128..8192", 8192, 2048}};
  return laws;
}

const LengthLawInfo& info_of(LengthLaw law) {
  return length_laws()[static_cast<size_t>(law)];
}

std::vector<int64_t> draw_lengths(LengthLaw law, uint64_t seed, int64_t count) {
  Sampler sampler(law, seed);
  std::vector<int64_t> lengths;
  lengths.reserve(static_cast<size_t>(std::max<int64_t>(count, 0)));
  for (int64_t i = 0; i < count; ++i) lengths.push_back(sampler.next());
  return lengths;
}

std::vector<int64_t> draw_tokens(LengthLaw law, uint64_t seed, int64_t tokens) {
  Sampler sampler(law, seed);
  std::vector<int64_t> lengths;
  for (int64_t drawn = 0; drawn < tokens; drawn += lengths.back()) lengths.push_back(sampler.next());
  return lengths;
}

}  // namespace ringfold
