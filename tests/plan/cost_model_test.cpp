#include "ringfold/plan/cost_model.h"

#include <gtest/gtest.h>

#include <vector>

namespace ringfold {
namespace {

double pack_ms(const std::vector<int64_t>& lengths, int c) {
  return CostModel::qwen3_4b_h200().pack_us(lengths, CpSize{c}) / 1e3;
}

// The typical sizes that the planner study quotes for the 4B model.
TEST(CostModel, gives_the_typical_times_of_the_4b_model) {
  EXPECT_NEAR(pack_ms({8192}, 1), 436, 1);
  EXPECT_NEAR(pack_ms({32768}, 4), 828, 1);
  EXPECT_NEAR(pack_ms({32768}, 8), 426, 1);
  EXPECT_NEAR(pack_ms({57000}, 8), 1080, 30);  // quoted as 57 K
  EXPECT_NEAR(pack_ms({57000}, 16), 870, 30);
  EXPECT_NEAR(CostModel::qwen3_4b_h200().pack_us(8192, 0, CpSize{1}) / 1e3, 305, 1);  // the linear part alone
}

TEST(CostModel, rate_is_interpolated_between_its_entries_and_bounded_outside) {
  const auto model = CostModel::qwen3_4b_h200();
  EXPECT_DOUBLE_EQ(model.attention_rate(512), 210e6);
  EXPECT_DOUBLE_EQ(model.attention_rate(1024), 320e6);  // half way in the logarithm
  EXPECT_DOUBLE_EQ(model.attention_rate(8192), 530e6);
  EXPECT_DOUBLE_EQ(model.attention_rate(1 << 20), 550e6);
  EXPECT_DOUBLE_EQ(model.attention_rate(256), 105e6);
}

TEST(CostModel, short_chunks_expose_their_traffic) {
  // At c = 8 a short sample waits for latency on every hop of every layer, so it is slower than alone.
  EXPECT_GT(pack_ms({256}, 8), pack_ms({256}, 1));
  EXPECT_LT(pack_ms({32768}, 8), pack_ms({32768}, 4));
}

TEST(CostModel, groups_across_nodes_pay_the_slower_link) {
  auto one_node = CostModel::qwen3_4b_h200();
  one_node.node_size = 16;
  const std::vector<int64_t> lengths{57 * 1024};
  EXPECT_LT(one_node.pack_us(lengths, CpSize{16}), CostModel::qwen3_4b_h200().pack_us(lengths, CpSize{16}));
}

TEST(CostModel, hops_across_nodes_have_a_latency_of_their_own) {
  auto model = CostModel::qwen3_4b_h200();
  const std::vector<int64_t> lengths{512};
  const double before_8 = model.pack_us(lengths, CpSize{8}), before_16 = model.pack_us(lengths, CpSize{16});
  model.cross_node_hop_latency_us += 100;
  EXPECT_DOUBLE_EQ(model.pack_us(lengths, CpSize{8}), before_8);
  // 15 hops in each of 36 layers, forward and backward, none hidden under so little attention.
  EXPECT_NEAR(model.pack_us(lengths, CpSize{16}) - before_16, 100.0 * 15 * 36 * 2, 1);
}

TEST(CostModel, gathered_keys_and_values_wait_for_all_bytes_and_few_latencies) {
  auto model = CostModel::qwen3_4b_h200();
  model.comm = CpCommType::kAllGather;
  const CpSize c{4};
  const std::vector<int64_t> lengths{8192};
  const double kv_us = 2048 * model.kv_bytes_per_token_layer / model.node_bytes_per_us;
  const double expected = model.fixed_us + model.us_per_token * 2048 + model.attention_us(8192, c) +
                          36 * (25 + 3 * kv_us + 2 * 25 + 3 * 3 * kv_us);
  EXPECT_NEAR(model.pack_us(lengths, c), expected, 1e-6);
  EXPECT_EQ(model.pack_us(lengths, CpSize{1}), CostModel::qwen3_4b_h200().pack_us(lengths, CpSize{1}));
}

TEST(CostModel, travelling_heads_wait_for_all_bytes_and_keep_their_own_share) {
  auto model = CostModel::qwen3_4b_h200();  // 32 query heads and 8 KV heads of 128 in bf16
  model.comm = CpCommType::kA2a;
  const double q = 32 * 128 * 2, k = 8 * 128 * 2;
  EXPECT_EQ(model.query_bytes_per_token_layer, q);
  const std::vector<int64_t> lengths{16384};
  const auto exposed = [&](int c, double copies) {
    const double rows = 16384.0 / c, away = (c - 1.0) / c;
    const double forward = rows * away * (q + 2 * k * copies + q);
    const double backward = rows * away * (3 * q + 2 * k * copies + q + 2 * k * copies);
    const CostModel::Hop link = model.hop(CpSize{c});
    return 36 * (4 * link.latency_us + (forward + backward) / link.bytes_per_us);
  };
  const auto compute = [&](int c) {
    return model.fixed_us + model.us_per_token * (16384.0 / c) + model.attention_us(16384, CpSize{c});
  };
  EXPECT_NEAR(model.pack_us(lengths, CpSize{4}), compute(4) + exposed(4, 1), 1e-6);
  // Twice as many ranks as KV heads: each KV head goes to two.
  EXPECT_NEAR(model.pack_us(lengths, CpSize{16}), compute(16) + exposed(16, 2), 1e-6);
  EXPECT_EQ(model.pack_us(lengths, CpSize{1}), CostModel::qwen3_4b_h200().pack_us(lengths, CpSize{1}));
}

TEST(CostModel, the_group_shares_the_vision_tower) {
  auto model = CostModel::qwen3_4b_h200();
  const std::vector<int64_t> lengths{4000, 100}, vision{3000, 0};
  EXPECT_EQ(model.pack_us(lengths, CpSize{4}, vision), model.pack_us(lengths, CpSize{4})) << "a text model";
  model.us_per_vision_token = 20;
  EXPECT_NEAR(model.pack_us(lengths, CpSize{4}, vision) - model.pack_us(lengths, CpSize{4}), 20 * 3000 / 4, 1e-6);
  EXPECT_NEAR(lower_bound_us(lengths, 1, 8192, model, vision) - lower_bound_us(lengths, 1, 8192, model), 60'000, 1e-6);
}

TEST(CostModel, running_sums_give_the_same_time) {
  const auto model = CostModel::qwen3_4b_h200();
  const CpSize c{4};
  const std::vector<int64_t> lengths{1000, 2001, 3};
  const double attention = model.attention_us(1000, c) + model.attention_us(2001, c) + model.attention_us(3, c);
  EXPECT_DOUBLE_EQ(model.pack_us(250 + 502 + 2, attention, c), model.pack_us(lengths, c));
}

TEST(LowerBound, is_the_largest_of_work_longest_and_memory) {
  const auto model = CostModel::qwen3_4b_h200();
  const std::vector<int64_t> one{32768};
  EXPECT_DOUBLE_EQ(lower_bound_us(one, 4, 8192, model), model.pack_us(one, CpSize{4}));
  // Many short samples: the work, spread evenly.
  const std::vector<int64_t> many(512, 1024);
  const double work = 512 * (model.us_per_token * 1024 + model.attention_us(1024, CpSize{1}));
  EXPECT_NEAR(lower_bound_us(many, 8, 8192, model), work / 8, 1e-9 * work);
  // A tiny budget forces micro-steps, each with its fixed time.
  const std::vector<int64_t> tiny(64, 1);
  EXPECT_DOUBLE_EQ(lower_bound_us(tiny, 1, 1, model), 64 * model.fixed_us);
  EXPECT_EQ(lower_bound_us({}, 8, 8192, model), 0);
}

}  // namespace
}  // namespace ringfold
