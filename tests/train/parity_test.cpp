// Every layout equals one rank that runs one sample at a time: loss, gradients, log-probs in input order.
#include "train/train_fixture.h"

namespace ringfold {
namespace {

struct LengthSet {
  std::string name;
  std::vector<int64_t> lengths;
};

// Awkward on purpose, for a largest CP size of S at b = 16: tiny, primes, around 2c, one giant among dwarfs.
std::vector<LengthSet> length_sets(int max_cp) {
  const int64_t longest = 16 * max_cp;
  std::vector<int64_t> around;
  for (int64_t c = 2; c <= max_cp; c *= 2) around.insert(around.end(), {2 * c - 1, 2 * c, 2 * c + 1});
  if (around.empty()) around = {1, 2, 3};
  return {{"tiny", {1, 2, 3, 2, 1}},
          {"one sample of 3", {3}},
          {"primes", {2, 3, 5, 7, 11, 13, 7, 5}},
          {"around 2c", around},
          {"giant among dwarfs", {2, 3, longest - 1, 1, 4, 2, 5, 9}},
          {"two giants and a crowd", {longest, 6, 7, 3, longest / 2 + 1, 5, 9, 8, 2, 10, 1, 6}}};
}

constexpr std::pair<CpPolicy, Execution> kPolicies[] = {{CpPolicy::kUniform, Execution::kLockstep},
                                                        {CpPolicy::kStatic, Execution::kLockstep},
                                                        {CpPolicy::kMixed, Execution::kLockstep},
                                                        {CpPolicy::kMixed, Execution::kFree}};

struct Layout {
  int world;
  int max_cp;
};

class Parity : public ::testing::TestWithParam<Layout> {};

TEST_P(Parity, every_policy_and_scheme_equals_one_rank) {
  const auto [world, max_cp] = GetParam();
  std::vector<RunPlan> runs;
  std::vector<RunOutcome> references;
  std::vector<std::string> names;
  for (const LengthSet& set : length_sets(max_cp)) {
    for (const std::string dtype : {"float64", "float32"}) {
      RunPlan run;
      run.settings = dynamic_settings(world, 16 * max_cp, 16);
      run.settings.dtype = dtype;
      run.data = make_dataset(set.lengths);
      const RunOutcome reference = run_reference(run);
      for (const auto& [policy, execution] : kPolicies) {
        for (const CpCommType comm : {CpCommType::kP2p, CpCommType::kAllGather, CpCommType::kA2a}) {
          if (comm == CpCommType::kA2a && max_cp > run.config.num_attention_heads) continue;
          for (const std::string recompute : {"none", "full"}) {
            // Half of the runs of the third scheme, for the sake of time.
            if (comm == CpCommType::kA2a && (recompute == "full") != (dtype == "float32")) continue;
            run.settings.parallel.cp_policy = policy;
            run.settings.parallel.cp_policy_given = true;
            run.settings.parallel.execution = execution;
            run.settings.parallel.execution_given = true;
            run.settings.parallel.cp_comm_type = comm;
            run.settings.recompute = recompute;
            runs.push_back(run);
            references.push_back(reference);
            names.push_back(set.name + " " + dtype + " " + std::string(to_string(policy)) + " " +
                            std::string(to_string(execution)) + " " + std::string(to_string(comm)) + " recompute " +
                            recompute);
          }
        }
      }
    }
  }
  const std::vector<RunOutcome> outcomes = run_layouts(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    expect_equal_outcomes(outcomes[i], references[i], runs[i].settings.dtype == "float64", names[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(layouts, Parity,
                         ::testing::Values(Layout{1, 1}, Layout{2, 1}, Layout{2, 2}, Layout{4, 2}, Layout{4, 4},
                                           Layout{8, 4}, Layout{8, 8}),
                         [](const auto& layout) {
                           return "world" + std::to_string(layout.param.world) + "_S" +
                                  std::to_string(layout.param.max_cp);
                         });

// Query heads for every rank and fewer KV heads; with 4 query heads `mixed` keeps to groups of 4 on 8 ranks.
TEST(Parity, all_to_all_equals_one_rank_on_eight) {
  for (const int64_t heads : {8, 4}) {
    const int max_cp = static_cast<int>(heads);
    std::vector<RunPlan> runs;
    std::vector<RunOutcome> references;
    for (const LengthSet& set : length_sets(max_cp)) {
      RunPlan run;
      run.config.num_attention_heads = heads;
      run.settings = dynamic_settings(8, 16 * max_cp, 16);
      run.data = make_dataset(set.lengths);
      const RunOutcome reference = run_reference(run);
      run.settings.parallel.cp_comm_type = CpCommType::kA2a;
      run.settings.parallel.cp_policy_given = true;
      for (const CpPolicy policy : {CpPolicy::kUniform, CpPolicy::kMixed}) {
        run.settings.parallel.cp_policy = policy;
        runs.push_back(run);
        references.push_back(reference);
      }
    }
    const std::vector<RunOutcome> outcomes = run_layouts(runs);
    int largest = 1;
    for (size_t i = 0; i < runs.size(); ++i) {
      expect_equal_outcomes(outcomes[i], references[i], true, "run " + std::to_string(i), runs[i].config);
      largest = std::max(largest, outcomes[i].cp_sizes.back());
    }
    EXPECT_EQ(largest, heads);
  }
}

TEST(Parity, static_by_work_and_plain_static_cp_equal_one_rank) {
  RunPlan run;
  run.settings = dynamic_settings(4, 64, 16);
  run.data = make_dataset({40, 3, 17, 9, 1, 22, 5, 30});
  const RunOutcome reference = run_reference(run);
  run.settings.parallel.cp_policy = CpPolicy::kStatic;
  run.settings.parallel.cp_policy_given = true;
  run.settings.parallel.static_balance = PackBalance::kWork;
  expect_equal_outcomes(run_layout(run), reference, true, "static by work");

  RunPlan plain = run;
  plain.settings.parallel = {};
  plain.settings.parallel.world_size = 4;
  plain.settings.parallel.context_parallel_size = 2;
  plain.settings.parallel.context_parallel_size_given = true;
  const RunOutcome got = run_layout(plain);
  expect_equal_outcomes(got, reference, true, "context-parallel-size 2, one sample a pack");
  EXPECT_EQ(got.cp_sizes, std::vector<int>{2});
}

TEST(Parity, the_same_bits_on_two_runs) {
  RunPlan run;
  run.settings = dynamic_settings(4, 64, 16);
  run.settings.dtype = "float32";
  run.settings.lr = 1e-2;
  run.update = true;
  run.steps = 3;
  run.data = make_dataset({40, 3, 17, 9, 1, 22, 5, 64});
  const RunOutcome first = run_layout(run);
  const RunOutcome second = run_layout(run);
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_TRUE(at::equal(first.weights, second.weights));
  EXPECT_GT(first.cp_sizes.back(), 1);
}

TEST(Parity, several_steps_end_with_the_same_weights_on_any_layout) {
  RunPlan run;
  run.settings = dynamic_settings(4, 64, 16);
  run.settings.lr = 1e-2;
  run.settings.weight_decay = 0.1;
  run.settings.clip_grad = 0.5;
  run.update = true;
  run.steps = 4;
  run.data = make_dataset({40, 3, 17, 9, 1, 22, 5, 64, 6, 6, 7});
  const RunOutcome reference = run_reference(run);
  const RunOutcome got = run_layout(run);
  EXPECT_NEAR(got.loss, reference.loss, 1e-9 * reference.loss);
  EXPECT_LE((got.weights - reference.weights).abs().max().item<double>(), 1e-8);
}

}  // namespace
}  // namespace ringfold
