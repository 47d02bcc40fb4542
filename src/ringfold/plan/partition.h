// Splitting weighted items into parts: Karmarkar-Karp (largest differencing) and first-fit counting. Integer arithmetic
// and full tie rules, so every rank finds the same parts. Source: Karmarkar & Karp 1982; the k-way form of Korf 2009.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ringfold {

// Items of one part, as indices into the weights, ascending.
using Part = std::vector<int>;

// Splits items of positive weight into exactly `parts` parts of nearly equal sums. Parts come out by descending
// (sum, count, first item merged). With at least `parts` items no part is empty, else the last ones are.
// O(n log n) heap work plus O(parts) moves a merge.
std::vector<Part> karmarkar_karp(std::span<const int64_t> weights, int parts);

// Bins that first-fit opens for items in the given order. An item above the capacity takes a bin of its own.
int first_fit_count(std::span<const int64_t> weights, int64_t capacity);

// The values at these indices.
std::vector<int64_t> gather(std::span<const int64_t> values, std::span<const int> indices);

}  // namespace ringfold
