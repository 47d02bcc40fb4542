// Random numbers that are the same on every machine: own generator, no <random> distributions.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace ringfold {

// splitmix64 (Steele, Lea & Flood 2014): 64 bits a call, any seed.
class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  // In (0, 1): never an end, so that logarithms and tails are finite.
  double uniform() { return (static_cast<double>(bits() >> 12) + 0.5) / 4503599627370496.0; }
  bool chance(double p) { return uniform() < p; }
  // Box-Muller, one of the pair.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  double lognormal(double ln_mean, double ln_std) { return std::exp(ln_mean + ln_std * normal()); }
  double pareto(double from, double alpha) { return from * std::pow(uniform(), -1 / alpha); }
  int binomial(int trials, double p) {
    int hits = 0;
    for (int i = 0; i < trials; ++i) hits += chance(p) ? 1 : 0;
    return hits;
  }
  // Failures before the first success, of this mean.
  int geometric(double mean) { return static_cast<int>(std::log(uniform()) / std::log(mean / (1 + mean))); }

 private:
  uint64_t state_;
};

}  // namespace ringfold
