// Measuring packs, and the costs a run plans by.
#include "ringfold/train/calibration.h"

#include <cstdio>
#include <fstream>
#include "ringfold/report/cost_model_file.h"
#include "ringfold/report/timeline.h"
#include "ringfold/train/planning.h"
#include "train/train_fixture.h"

namespace ringfold {
namespace {

TEST(Calibration, times_packs_of_every_size_and_all_ranks_agree) {
  log::set_level(log::Level::kWarning);
  const RunSettings settings = dynamic_settings(4, 512, 256);
  std::mutex mutex;
  std::vector<std::vector<TimedPack>> by_rank(4);
  run_ranks(4, [&](RankContext& at) {
    Session session = session_at(at, settings);
    DenseModel model(tiny_config(), at::kDouble, uint64_t{5});
    FlatParameters flat(model.parameters(), shard_of(session.collectives()));
    TrainState state{model, flat};
    BenchSettings bench;
    bench.steps = 3;
    std::vector<TimedPack> timed = time_packs(session, state, packs_to_time(session.topology), bench);
    const std::lock_guard lock(mutex);
    by_rank[static_cast<size_t>(at.rank.value())] = std::move(timed);
  });
  std::vector<MeasuredPack> measured;
  for (size_t i = 0; i < by_rank[0].size(); ++i) {
    const TimedPack& timed = by_rank[0][i];
    EXPECT_GT(timed.measured.us, 0);
    EXPECT_GE(timed.spread, 0);
    for (const auto& other : by_rank) EXPECT_EQ(other[i].measured.us, timed.measured.us);
    measured.push_back(timed.measured);
  }
  for (const int c : {1, 2, 4}) {  // 4: above S, which `mixed` may use
    EXPECT_TRUE(std::any_of(measured.begin(), measured.end(),
                            [&](const MeasuredPack& m) { return m.pack.cp_size.value() == c; }));
  }
  const Calibration fit = calibrate(measured, CostModel::on_h200(model_shape(tiny_config())));
  EXPECT_EQ(fit.packs, static_cast<int>(measured.size()));
}

TEST(Calibration, needs_a_budget_with_room_for_packs) {
  try {
    packs_to_time(derive_topology(dynamic_settings(2, 32, 16).parallel));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "[bench] --calibrate: got --max-tokens-per-gpu 16, which leaves 2 pack(s) to time, expected at least "
                 "3. Hint: the budget of your runs, of some thousand tokens");
  }
}

TEST(CostModelOfRun, is_that_of_the_model_or_of_a_file) {
  RunSettings settings;
  Topology topology;
  topology.cp_comm_type = CpCommType::kAllGather;
  const ModelConfig config = tiny_config();
  const CostModel own = cost_model_of_run(settings, config, topology);
  EXPECT_EQ(own.layers, 2);
  EXPECT_EQ(own.kv_bytes_per_token_layer, 2 * 2 * 8 * 2);
  EXPECT_EQ(own.attention_flops_per_token2, 7.0 * 2 * 32);
  EXPECT_LT(own.us_per_token, CostModel::qwen3_4b_h200().us_per_token / 1000);
  EXPECT_EQ(own.comm, CpCommType::kAllGather);

  CostModel other = own;
  other.fixed_us = 12.5;
  settings.cost_model = ::testing::TempDir() + "ringfold_calibration_test_cost.toml";
  std::ofstream(settings.cost_model) << cost_model_to_toml(other, "a test");
  EXPECT_EQ(cost_model_of_run(settings, config, topology).fixed_us, 12.5);
  EXPECT_EQ(cost_model_of_run(settings, config, topology).comm, CpCommType::kAllGather);
  std::remove(settings.cost_model.c_str());
  settings.cost_model = "megatron-small";
  EXPECT_EQ(cost_model_of_run(settings, config, topology).layers, 12);
}

TEST(Timeline, a_step_reports_start_and_end_of_each_pack) {
  log::set_level(log::Level::kWarning);
  RunSettings settings = dynamic_settings(4, 64, 16);
  settings.parallel.cp_policy_given = true;
  settings.parallel.cp_policy = CpPolicy::kMixed;
  const Dataset data = make_dataset({60, 30, 14, 9, 5, 3, 12, 16, 2});
  std::mutex mutex;
  std::vector<StepReport> reports(4);
  run_ranks(4, [&](RankContext& at) {
    Session session = session_at(at, settings);
    session.cost.fixed_us = 7e6;  // plans go by it
    DenseModel model(tiny_config(), at::kDouble, uint64_t{5});
    FlatParameters flat(model.parameters(), shard_of(session.collectives()));
    TrainState state{model, flat};
    const StepBatch batch(data, {0, 1, 2, 3, 4, 5, 6, 7, 8}, settings.loss_aggregation);
    StepReport report = train_step(session, state, batch, 1, 0);
    const std::lock_guard lock(mutex);
    reports[static_cast<size_t>(at.rank.value())] = std::move(report);
  });
  const StepReport& report = reports[0];
  EXPECT_GT(report.plan.summary.makespan_us, 7e6);
  for (const StepReport& other : reports) EXPECT_EQ(other.pack_us, report.pack_us);
  const StepTimeline timeline = make_timeline(1, 1e3 * report.step_ms, report.plan, report.pack_us);
  ASSERT_EQ(timeline.measured.size(), 4u);
  for (size_t rank = 0; rank < 4; ++rank) {
    double before = 0, busy_ms = 0;
    for (const PackTime& pack : timeline.measured[rank]) {
      EXPECT_GE(pack.start_us, before);
      EXPECT_GT(pack.end_us, pack.start_us);
      before = pack.end_us;
      busy_ms += (pack.end_us - pack.start_us) / 1e3;
    }
    EXPECT_LT(before, 1e3 * report.step_ms);
    EXPECT_GE(busy_ms + 1e-9, report.busy_ms[rank]);  // which leaves waits out
  }
  EXPECT_GT(report.peak_memory_bytes, 0);
}

}  // namespace
}  // namespace ringfold
