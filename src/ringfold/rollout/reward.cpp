#include "ringfold/rollout/reward.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

class ExactReward : public RewardModel {
 public:
  explicit ExactReward(std::vector<int64_t> stops) : stops_(std::move(stops)) {}

  double score(const RewardRequest& request) override {
    const auto response = without_stop(request.response), answer = without_stop(request.answer);
    return std::equal(response.begin(), response.end(), answer.begin(), answer.end()) ? 1 : 0;
  }

 private:
  std::span<const int64_t> without_stop(std::span<const int64_t> tokens) const {
    while (!tokens.empty() && std::find(stops_.begin(), stops_.end(), tokens.back()) != stops_.end()) {
      tokens = tokens.first(tokens.size() - 1);
    }
    return tokens;
  }

  std::vector<int64_t> stops_;
};

class NumericReward : public RewardModel {
 public:
  explicit NumericReward(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  double score(const RewardRequest& request) override {
    const double given = last_number(readable_text(*tokenizer_, request.response));
    const double right = last_number(readable_text(*tokenizer_, request.answer));
    return std::abs(given - right) <= 1e-9 * std::max(1.0, std::abs(right)) ? 1 : 0;  // NaN: 0
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
};

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

}  // namespace

std::string readable_text(const Tokenizer& tokenizer, std::span<const int64_t> ids) {
  try {
    return tokenizer.decode(ids);
  } catch (const DataError&) {
    std::string text;
    for (const int64_t& id : ids) {
      try {
        text += tokenizer.decode(std::span(&id, 1));
      } catch (const DataError&) {
        continue;
      }
    }
    return text;
  }
}

double last_number(const std::string& text) {
  size_t end = text.size();
  while (end > 0 && !is_digit(text[end - 1])) --end;
  if (end == 0) return std::numeric_limits<double>::quiet_NaN();
  size_t begin = end;
  // Points and commas only between digits: "in 1,234.50 s." ends at the 0.
  while (begin > 0 && (is_digit(text[begin - 1]) || ((text[begin - 1] == '.' || text[begin - 1] == ',') && begin > 1 &&
                                                     is_digit(text[begin - 2])))) {
    --begin;
  }
  std::string digits;
  for (size_t i = begin; i < end; ++i) {
    if (text[i] != ',') digits += text[i];
  }
  double value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  // A minus sign, unless it stands between two operands.
  const bool minus =
      begin > 0 && text[begin - 1] == '-' && (begin < 2 || !std::isalnum(static_cast<unsigned char>(text[begin - 2])));
  return minus ? -value : value;
}

std::unique_ptr<RewardModel> make_exact_reward(std::vector<int64_t> stop_token_ids) {
  return std::make_unique<ExactReward>(std::move(stop_token_ids));
}

std::unique_ptr<RewardModel> make_numeric_reward(std::shared_ptr<const Tokenizer> tokenizer) {
  return std::make_unique<NumericReward>(std::move(tokenizer));
}

}  // namespace ringfold
