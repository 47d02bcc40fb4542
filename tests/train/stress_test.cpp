// Free execution has no barrier between groups: whoever is late, nothing deadlocks, and nothing but time changes.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "train/train_fixture.h"

namespace ringfold {
namespace {

// Comes late to some exchanges, by up to 3 ms.
class LateExchange : public Exchange {
 public:
  LateExchange(Exchange& inner, uint64_t seed) : inner_(inner), state_(seed * 2654435761U + 1) {}

  std::unique_ptr<PendingExchange> start(const CpGroup& group, std::span<const Transfer> transfers,
                                         const ExchangeKey& key) override {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    const uint64_t drawn = (state_ >> 33) % 1000;
    if (drawn < 30) std::this_thread::sleep_for(std::chrono::microseconds(100 * drawn));
    return inner_.start(group, transfers, key);
  }
  Usage take_usage() override { return inner_.take_usage(); }

 private:
  Exchange& inner_;
  uint64_t state_;
};

// RINGFOLD_STRESS_STEPS=1000 for the long form, four minutes on two cores.
int stress_steps() {
  const char* steps = std::getenv("RINGFOLD_STRESS_STEPS");
  return steps != nullptr ? std::atoi(steps) : 100;
}

TEST(Stress, free_steps_of_late_ranks_end_with_the_same_bits) {
  RunPlan run;
  run.settings = dynamic_settings(4, 256, 64);
  run.settings.parallel.cp_policy = CpPolicy::kMixed;
  run.settings.lr = 1e-4;
  run.data = make_dataset({40, 9, 3, 200, 17, 64, 100, 31});
  run.log_probs = false;
  run.update = true;
  run.steps = stress_steps();
  const RunOutcome on_time = run_layouts({run}).front();
  EXPECT_GT(on_time.cp_sizes.size(), 1u);

  std::vector<RunOutcome> late(4);
  run_ranks(
      4,
      [&](RankContext& at) {
        LateExchange exchange(at.exchange, static_cast<uint64_t>(at.rank.value()));
        Session session = session_at(at, run.settings);
        session.exchange = &exchange;
        late[static_cast<size_t>(at.rank.value())] = run_on_rank(run, session);
      },
      std::chrono::seconds(60));
  for (const RunOutcome& outcome : late) {
    EXPECT_EQ(outcome.loss, on_time.loss);
    EXPECT_TRUE(at::equal(outcome.weights, on_time.weights));
  }
}

}  // namespace
}  // namespace ringfold
