// A step prepared on another thread, while the step before it runs.
#include "ringfold/train/preparation.h"

#include <gmock/gmock.h>

#include <future>

#include "train/train_fixture.h"

namespace ringfold {
namespace {

using ::testing::HasSubstr;

struct Outcomes {
  std::vector<double> losses, makespans;
  at::Tensor weights;
};

// Three steps on different batches, each prepared ahead or on the spot.
Outcomes train(const RunSettings& settings, bool ahead) {
  log::set_level(log::Level::kWarning);
  const Dataset data = make_dataset({60, 30, 14, 9, 5, 3, 12, 16, 2, 40, 1, 22});
  Outcomes outcomes;
  run_ranks(4, [&](RankContext& at) {
    Session session = session_at(at, settings);
    DenseModel model(tiny_config(), at::kDouble, uint64_t{5});
    FlatParameters flat(model.parameters(), shard_of(session.collectives()));
    AdamW optimizer(flat, {});
    TrainState state{model, flat, &optimizer};
    const auto batch_of = [&](int64_t step) {
      const int64_t first = 4 * (step - 1);
      return StepBatch(data, {first, first + 1, first + 2, first + 3}, settings.loss_aggregation);
    };
    std::future<PreparedStep> next;
    for (int64_t step = 1; step <= 3; ++step) {
      PreparedStep prepared = next.valid() ? next.get() : prepare_step(session, batch_of(step), step);
      if (ahead && step < 3) {
        next =
            std::async(std::launch::async, [&, step] { return prepare_step(session, batch_of(step + 1), step + 1); });
      }
      const StepReport report = train_step(session, state, prepared, step, 1e-2);
      if (at.rank.value() != 0) continue;
      outcomes.losses.push_back(report.sums.loss);
      outcomes.makespans.push_back(report.plan.summary.makespan_us);
    }
    if (at.rank.value() == 0) outcomes.weights = flat.values().clone();
  });
  return outcomes;
}

TEST(Preparation, in_the_background_gives_the_same_bits) {
  for (const CpPolicy policy : {CpPolicy::kUniform, CpPolicy::kMixed}) {
    RunSettings settings = dynamic_settings(4, 64, 16);
    settings.parallel.cp_policy_given = true;
    settings.parallel.cp_policy = policy;
    const Outcomes on_the_spot = train(settings, false), ahead = train(settings, true);
    ASSERT_EQ(ahead.losses.size(), 3u);
    EXPECT_EQ(ahead.losses, on_the_spot.losses);
    EXPECT_EQ(ahead.makespans, on_the_spot.makespans);
    EXPECT_TRUE(at::equal(ahead.weights, on_the_spot.weights));
  }
}

TEST(Preparation, that_fails_is_told_where_its_step_begins) {
  const Dataset data = make_dataset({9, 60});
  Session session;
  session.settings = dynamic_settings(1, 32, 32);
  session.topology = derive_topology(session.settings.parallel);
  // A sample over the budget's reach: no plan, which nobody hears of while step 1 runs.
  auto next = std::async(std::launch::async, [&] {
    return prepare_step(session, StepBatch(data, {1}, session.settings.loss_aggregation), 2);
  });
  next.wait();
  try {
    next.get();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kNoPlan);
    EXPECT_THAT(error.what(), HasSubstr("[plan] step 2: "));
  }
}

}  // namespace
}  // namespace ringfold
