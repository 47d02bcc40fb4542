// From the text of a flag to its value; each UsageError begins with `where` and names the text and what is expected.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ringfold {

int64_t parse_integer(const std::string& text, const std::string& where, int64_t low, int64_t high);
// Separated by commas.
std::vector<int64_t> parse_integers(const std::string& text, const std::string& where, int64_t low, int64_t high);
uint64_t parse_seed(const std::string& text, const std::string& where);
// Finite, within [low, high].
double parse_number(const std::string& text, const std::string& where, double low, double high);
bool parse_switch(const std::string& text, const std::string& where);
std::string parse_text(const std::string& text, const std::string& where);

struct Choices {
  std::vector<std::string> names;
  std::vector<std::string> not_built;  // known to users of other trainers: refused by name
};
// Index into choices.names.
size_t parse_choice(const std::string& text, const std::string& where, const Choices& choices);

}  // namespace ringfold
