// The fit finds the model that made the times: exactly, with noise, with outliers, and far from where it started.
#include "ringfold/plan/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ringfold/base/error.h"
#include "ringfold/plan/seeded_random.h"

namespace ringfold {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<MeasuredPack> times_of(const CostModel& truth, int largest_cp, double noise = 0, uint64_t seed = 1) {
  SeededRandom random(seed);
  std::vector<MeasuredPack> measured;
  for (CalibrationPack& pack : calibration_packs(largest_cp, 8192, 65536)) {
    const double us = truth.pack_us(pack.lengths, pack.cp_size) * std::exp(noise * random.normal());
    measured.push_back({std::move(pack), us});
  }
  return measured;
}

// A machine unlike the one the fit starts from: other constants, other curve.
CostModel other_machine() {
  CostModel truth = CostModel::qwen3_4b_h200();
  truth.fixed_us = 9000;
  truth.us_per_token = 61;
  truth.rate_flops_per_us = {90e6, 260e6, 400e6, 460e6, 470e6};
  truth.hop_latency_us = 70;
  truth.node_bytes_per_us = 60e3;
  return truth;
}

double worst_error(const CostModel& model, const CostModel& truth, int largest_cp) {
  double worst = 0;
  for (int c = 1; c <= largest_cp; c *= 2) {
    for (const int64_t length : {300, 1111, 5000, 8000, 20'000, 60'000}) {
      if (length > 8192 * c) continue;
      for (const size_t count : {1, 3}) {
        const std::vector<int64_t> lengths(count, length / static_cast<int64_t>(count));
        const double ratio = model.pack_us(lengths, CpSize{c}) / truth.pack_us(lengths, CpSize{c});
        worst = std::max(worst, std::abs(ratio - 1));
      }
    }
  }
  return worst;
}

TEST(CalibrationPacks, hold_the_budget_and_show_every_size) {
  const auto packs = calibration_packs(8, 4096, 20'000);
  for (int c = 1; c <= 8; c *= 2) {
    int single = 0, full = 0;
    for (const CalibrationPack& pack : packs) {
      if (pack.cp_size != CpSize{c}) continue;
      int64_t tokens = 0;
      for (const int64_t length : pack.lengths) {
        EXPECT_LE(length, 20'000);
        EXPECT_GE(length, 1);
        tokens += length;
      }
      EXPECT_LE(tokens, 4096 * c);
      ++(pack.lengths.size() == 1 ? single : full);
    }
    EXPECT_GE(single, 5) << c;
    EXPECT_GE(full, 3) << c;
  }
  EXPECT_EQ(calibration_packs(1, 1, 1).size(), 1u);
}

TEST(Calibrate, finds_the_terms_of_exact_times) {
  const CostModel truth = other_machine();
  const Calibration found = calibrate(times_of(truth, 8), CostModel::qwen3_4b_h200());
  EXPECT_LT(found.median_error, 1e-3);
  EXPECT_LT(worst_error(found.model, truth, 8), 0.01);
  EXPECT_NEAR(found.model.fixed_us / truth.fixed_us, 1, 0.02);
  EXPECT_NEAR(found.model.us_per_token / truth.us_per_token, 1, 0.02);
  EXPECT_NEAR(found.model.node_bytes_per_us / truth.node_bytes_per_us, 1, 0.05);
  EXPECT_NEAR(found.model.hop_latency_us / truth.hop_latency_us, 1, 0.05);
  EXPECT_EQ(found.outliers, 0);
  EXPECT_EQ(found.model.layers, truth.layers);
}

TEST(Calibrate, noise_of_three_per_cent_stays_in_the_noise) {
  const CostModel truth = other_machine();
  for (const uint64_t seed : {1u, 2u, 3u, 4u}) {
    const Calibration found = calibrate(times_of(truth, 8, 0.03, seed), CostModel::qwen3_4b_h200());
    EXPECT_LT(worst_error(found.model, truth, 8), 0.06) << seed;
    EXPECT_LT(found.median_error, 0.04) << seed;
  }
}

TEST(Calibrate, one_slow_run_in_ten_hardly_counts) {
  const CostModel truth = other_machine();
  auto measured = times_of(truth, 8, 0.01);
  for (size_t i = 4; i < measured.size(); i += 10) measured[i].us *= 4;
  const Calibration found = calibrate(measured, CostModel::qwen3_4b_h200());
  EXPECT_LT(worst_error(found.model, truth, 8), 0.04);
  EXPECT_GE(found.outliers, static_cast<int>(measured.size() / 10) - 1);
  EXPECT_LE(found.outliers, static_cast<int>(measured.size() / 10) + 2);
}

TEST(Calibrate, a_machine_a_thousand_times_slower_is_no_problem) {
  CostModel truth = other_machine();
  truth.fixed_us *= 1000;
  truth.us_per_token *= 1500;
  truth.hop_latency_us *= 40;
  truth.node_bytes_per_us /= 300;
  for (double& rate : truth.rate_flops_per_us) rate /= 2000;
  const Calibration found = calibrate(times_of(truth, 4, 0.01), CostModel::megatron_small_h200());
  // The small model's shape has other layers and bytes: only the times must come out right.
  EXPECT_LT(worst_error(found.model, truth, 4), 0.05);
}

TEST(Calibrate, gathered_keys_and_values_and_travelling_heads_are_other_curves) {
  for (const CpCommType comm : {CpCommType::kAllGather, CpCommType::kA2a}) {
    CostModel truth = other_machine();
    truth.comm = comm;
    CostModel shape = CostModel::qwen3_4b_h200();
    shape.comm = comm;
    const Calibration found = calibrate(times_of(truth, 8), shape);
    EXPECT_LT(worst_error(found.model, truth, 8), 0.01);
    EXPECT_EQ(found.model.comm, comm);
  }
}

TEST(Calibrate, what_no_pack_shows_is_named_and_scaled_along) {
  const CostModel truth = other_machine();
  const Calibration one_node = calibrate(times_of(truth, 4), CostModel::qwen3_4b_h200());
  EXPECT_THAT(one_node.unmeasured, Contains("cross_node_bytes_per_us"));
  EXPECT_THAT(one_node.unmeasured, Not(Contains("hop_latency_us")));
  EXPECT_THAT(one_node.unmeasured, Not(Contains("us_per_token")));
  EXPECT_GT(one_node.model.cross_node_bytes_per_us, 0);

  const Calibration one_rank = calibrate(times_of(truth, 1), CostModel::qwen3_4b_h200());
  EXPECT_THAT(one_rank.unmeasured, Contains("hop_latency_us"));
  EXPECT_LT(worst_error(one_rank.model, truth, 1), 0.01);

  const Calibration two_nodes = calibrate(times_of(truth, 16), CostModel::qwen3_4b_h200());
  EXPECT_THAT(two_nodes.unmeasured, Not(Contains("cross_node_bytes_per_us")));
  EXPECT_NEAR(two_nodes.model.cross_node_bytes_per_us / truth.cross_node_bytes_per_us, 1, 0.1);
}

TEST(Calibrate, images_show_the_vision_tower) {
  CostModel truth = other_machine();
  truth.us_per_vision_token = 12;
  std::vector<MeasuredPack> measured = times_of(truth, 4);
  for (size_t i = 0; i < measured.size(); i += 2) {
    CalibrationPack& pack = measured[i].pack;
    pack.vision_tokens.assign(pack.lengths.size(), pack.lengths[0] * 2);
    measured[i].us = truth.pack_us(pack.lengths, pack.cp_size, pack.vision_tokens);
  }
  const Calibration found = calibrate(measured, CostModel::qwen3_4b_h200());
  EXPECT_NEAR(found.model.us_per_vision_token, 12, 0.3);
}

TEST(Calibrate, is_deterministic) {
  const auto measured = times_of(other_machine(), 8, 0.05);
  const CostModel once = calibrate(measured, CostModel::qwen3_4b_h200()).model;
  const CostModel again = calibrate(measured, CostModel::qwen3_4b_h200()).model;
  EXPECT_EQ(once.us_per_token, again.us_per_token);
  EXPECT_EQ(once.rate_flops_per_us, again.rate_flops_per_us);
}

std::string refusal(const std::vector<MeasuredPack>& measured) {
  try {
    calibrate(measured, CostModel::qwen3_4b_h200());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Calibrate, refuses_what_cannot_be_fitted) {
  EXPECT_THAT(refusal({}), HasSubstr("[calibrate] too few measured packs: got 0, expected at least 3. Hint: "));
  auto measured = times_of(other_machine(), 1);
  measured[3].us = 0;
  EXPECT_THAT(refusal(measured), HasSubstr("pack 3: got a time of 0 us, expected more than 0. Hint: "));
  measured[3].us = NAN;
  EXPECT_THAT(refusal(measured), HasSubstr("pack 3: got a time of nan us"));
  measured[3].us = 1;
  measured[5].pack.lengths = {0};
  EXPECT_THAT(refusal(measured), HasSubstr("pack 5: got no samples, an empty one or CP size 1"));
}

}  // namespace
}  // namespace ringfold
