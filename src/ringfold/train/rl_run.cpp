#include "ringfold/train/rl_run.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "ringfold/base/log.h"
#include "ringfold/data/order.h"
#include "ringfold/device/release_memory.h"
#include "ringfold/report/event_file.h"
#include "ringfold/report/timeline.h"
#include "ringfold/train/objective_names.h"
#include "ringfold/train/resume.h"
#include "ringfold/train/rl_fields.h"
#include "ringfold/train/rollout_phase.h"
#include "ringfold/train/run_checkpoints.h"
#include "ringfold/train/schedule.h"
#include "ringfold/train/setup.h"
#include "ringfold/train/step.h"
#include "ringfold/train/stop_signal.h"

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Needs of the loop that `train` does not have.
void check_settings(const RunSettings& s) {
  if (s.output_dir.empty()) throw UsageError("[settings] --output-dir is missing. Hint: --output-dir RUN");
  if (s.num_rollout < 1) throw UsageError("[settings] --num-rollout is missing. Hint: --num-rollout 200");
  if (s.objective == Objective::kSft || estimator_of(s) == AdvantageEstimator::kData) {
    throw UsageError(fmt::format(
        "[settings] rl makes advantages from rewards, and --objective {} has none. Hint: --objective grpo, or for ppo "
        "an --advantage-estimator",
        name_of(s.objective)));
  }
  if (s.n_samples_per_prompt < 2 && estimator_of(s) != AdvantageEstimator::kReinforcePlusPlus) {
    throw UsageError(fmt::format(
        "[settings] --n-samples-per-prompt: got {}, expected at least 2: a lone response has advantage 0. Hint: 8, or "
        "--objective reinforce_plus_plus",
        s.n_samples_per_prompt));
  }
  if (s.rollout_stop_token_ids.empty() && s.rollout_lengths_file.empty()) {
    throw UsageError(
        "[settings] --rollout-stop-token-ids is missing: every response would run to its limit. Hint: the id of the "
        "model's end token, e.g. 151645 for Qwen3 chats");
  }
}

class RlRun {
 public:
  RlRun(Session& session, LoadedFiles& files, DenseModel& model, RewardModel& reward,
        const std::vector<int64_t>& given_lengths)
      : session_(session),
        settings_(session.settings),
        files_(files),
        model_(model),
        reward_(reward),
        given_lengths_(given_lengths),
        flat_(model.parameters(), shard_of(session.collectives())),
        optimizer_(flat_, {settings_.adam_beta1, settings_.adam_beta2, settings_.adam_eps, settings_.weight_decay}),
        state_{model, flat_, &optimizer_},
        checkpoints_(session) {
    // The policy moves away from the start, so that the start is kept; of a resumed run too, whose weights come later.
    if (needs_reference(settings_) && !files_.reference) files_.reference = ReferenceWeights::copy_of(model);
  }

  // From `point` (rank 0's), or from rollout 1.
  int run(std::optional<ResumePoint> point);

 private:
  void begin(const std::optional<ResumePoint>& point);
  void open_output();
  void iterate(int64_t rollout);
  void sleep(RolloutMetrics& metrics);
  void wake();
  void train_on(const Dataset& data, const RlFields& rl, RolloutMetrics& metrics);
  int64_t steps_of(int64_t responses) const { return steps_per_epoch(responses, settings_.global_batch_size); }
  void save_after(int64_t rollout);

  Session& session_;
  const RunSettings& settings_;
  LoadedFiles& files_;
  DenseModel& model_;
  RewardModel& reward_;
  const std::vector<int64_t>& given_lengths_;
  FlatParameters flat_;
  AdamW optimizer_;
  TrainState state_;
  bool asleep_ = false;
  int64_t rollout_ = 0;      // made
  int64_t step_ = 0;         // made
  int64_t total_steps_ = 0;  // of the schedule: with no group left out
  RunCheckpoints checkpoints_;
  // Rank 0.
  std::unique_ptr<MetricsFile> steps_file_, timelines_, rollouts_file_;
  std::unique_ptr<EventFile> events_;
  std::unique_ptr<Progress> progress_;
};

void RlRun::begin(const std::optional<ResumePoint>& point) {
  total_steps_ = settings_.num_rollout * steps_of(settings_.rollout_batch_size * settings_.n_samples_per_prompt);
  auto facts = run_facts(session_, files_);
  if (files_.reference) facts.emplace_back("reference weights", weights_fact(files_.reference->values()));
  rollout_ = resume_run(session_, point, facts, flat_, optimizer_).step;
  step_ = optimizer_.steps();  // every step of a rollout has loss tokens, and so an update
  if (session_.is_main()) open_output();
  checkpoints_.open(std::move(facts));
}

void RlRun::open_output() {
  const std::string& folder = settings_.output_dir;
  rewind_output(folder, rollout_, step_);
  steps_file_ = std::make_unique<MetricsFile>(folder + "/metrics.jsonl");
  timelines_ = std::make_unique<MetricsFile>(folder + "/timeline.jsonl");
  rollouts_file_ = std::make_unique<MetricsFile>(rollout_records(folder));
  events_ = std::make_unique<EventFile>(folder + "/tensorboard");
  progress_ = std::make_unique<Progress>(total_steps_, settings_.progress);
}

void RlRun::save_after(int64_t rollout) {
  session_.enter("saving", step_);
  CheckpointState state;
  state.step = rollout;
  // A rollout's log-probs are used up: nothing of it is kept.
  checkpoints_.save(std::move(state), model_, flat_, optimizer_, RlFields{});
}

void RlRun::train_on(const Dataset& data, const RlFields& rl, RolloutMetrics& metrics) {
  const auto count = static_cast<int64_t>(data.samples.size());
  for (int64_t k = 1; k <= steps_of(count); ++k) {
    ++step_;
    const uint64_t seed = settings_.seed + static_cast<uint64_t>(metrics.rollout);
    StepBatch batch(data, global_batch(count, settings_.global_batch_size, k, seed, settings_.shuffle).indices,
                    settings_.loss_aggregation,
                    settings_.loss_scale_factor > 0 ? settings_.loss_scale_factor
                                                    : static_cast<double>(settings_.rollout_max_response_len));
    batch.rl = &rl;
    const double lr = learning_rate(settings_, step_, total_steps_);
    const StepReport report = train_step(session_, state_, batch, step_, lr);
    metrics.tokens += report.plan.summary.tokens;
    if (!session_.is_main()) continue;
    StepMetrics step = step_metrics(session_, files_.config, batch, report);
    step.step = step_;
    step.lr = lr;
    step.epoch = static_cast<double>(metrics.rollout * settings_.rollout_batch_size) /
                 static_cast<double>(files_.data.samples.size());
    steps_file_->append(to_json_line(step));
    timelines_->append(to_json_line(make_timeline(step_, 1e3 * report.step_ms, report.plan, report.pack_us)));
    events_->append(step_, scalars_of(step));
    progress_->step(step);
  }
}

void RlRun::sleep(RolloutMetrics& metrics) {
  if (settings_.offload_train) release_cached_memory(session_.device);  // what the activations leave behind
  metrics.held_bytes_training = held_memory_bytes(session_.device);
  if (settings_.offload_train) {
    asleep_ = true;
    optimizer_.sleep();
    flat_.sleep();
    release_cached_memory(session_.device);
  }
  metrics.held_bytes_sampling = held_memory_bytes(session_.device);
}

void RlRun::wake() {
  if (!asleep_) return;
  asleep_ = false;
  release_cached_memory(session_.device);  // what the sampler's cache leaves behind
  flat_.wake();
  optimizer_.wake();
}

void RlRun::iterate(int64_t number) {
  const auto begin = Clock::now();
  RolloutMetrics metrics;
  sleep(metrics);
  const auto count = static_cast<int64_t>(files_.data.samples.size());
  const std::vector<int64_t> prompts =
      global_batch(count, settings_.rollout_batch_size, number, settings_.seed, settings_.shuffle).indices;
  const Rollout rollout = make_rollout(session_, model_, reward_, files_.data, prompts, given_lengths_, number);
  metrics.rollout = number;
  metrics.first_step = step_ + 1;
  if (!rollout.data.samples.empty()) {
    const auto scoring = Clock::now();
    const RlFields rl = rl_fields(session_, model_, rollout.data, files_.reference ? &*files_.reference : nullptr);
    metrics.log_probs_ms = ms_since(scoring);
    wake();
    const auto training = Clock::now();
    train_on(rollout.data, rl, metrics);
    metrics.train_ms = ms_since(training);
  } else if (session_.is_main()) {
    log::warning(fmt::format("rollout {}: the rewards of every group are equal; no step was made", number));
  }
  wake();  // also where no step was made
  metrics.last_step = step_;
  metrics.prompts = rollout.prompts;
  metrics.responses = rollout.responses;
  metrics.dropped_groups = rollout.dropped_groups;
  metrics.reward_mean = rollout.reward_mean;
  metrics.reward_std = rollout.reward_std;
  metrics.response_length_mean = rollout.response_length_mean;
  metrics.truncated_ratio = rollout.truncated_ratio;
  metrics.generate_ms = rollout.generate_ms;
  metrics.reward_ms = rollout.reward_ms;
  metrics.total_ms = ms_since(begin);
  if (metrics.train_ms > 0) metrics.train_tokens_per_s = static_cast<double>(metrics.tokens) / metrics.train_ms * 1e3;
  metrics.end_to_end_tokens_per_s = static_cast<double>(metrics.tokens) / metrics.total_ms * 1e3;
  if (!session_.is_main()) return;
  rollouts_file_->append(to_json_line(metrics));
  events_->append(number, scalars_of(metrics));
  log::info(
      fmt::format("ringfold: rollout {}: reward {:.3f} (std {:.3f}), response length {:.1f}, truncated {:.0f} %, "
                  "dropped groups {}",
                  number, metrics.reward_mean, metrics.reward_std, metrics.response_length_mean,
                  100 * metrics.truncated_ratio, metrics.dropped_groups));
}

int RlRun::run(std::optional<ResumePoint> point) {
  begin(point);
  point.reset();  // the file's tensors are in the run's own now
  const std::string& folder = settings_.output_dir;
  int signal = 0;
  while (rollout_ < settings_.num_rollout && signal == 0) {
    iterate(++rollout_);
    signal = agreed_stop_signal(session_.collectives());
    const bool ends = rollout_ == settings_.num_rollout || signal != 0;
    const bool due = settings_.save_interval > 0 && rollout_ % settings_.save_interval == 0;
    if (settings_.save && (due || ends)) save_after(rollout_);
    if (settings_.async_save) checkpoints_.require_saved();
  }
  checkpoints_.finish();
  session_.enter("saving", step_);
  if (session_.is_main()) {
    progress_.reset();
    export_hf(model_, folder + "/hf");
    log::info(fmt::format("ringfold: weights in {}/hf, rewards in {}/rollouts.jsonl", folder, folder));
  }
  session_.collectives().barrier("end of the run");
  if (signal != 0 && session_.is_main()) {
    log::warning(fmt::format("stopped by signal {} after a whole rollout; the weights were written", signal));
  }
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace

int run_rl(const RunSettings& settings) {
  std::unique_ptr<RewardModel> reward;
  std::optional<ResumePoint> point;
  std::vector<int64_t> lengths;
  StartedRun started = start_run(settings, [&](const Topology& topology) {
    check_settings(settings);
    make_output_folder(settings.output_dir);
    if (read_launch_env().rank == Rank(0)) point = find_resume_point(settings);
    std::shared_ptr<const Tokenizer> tokenizer;
    if (!settings.tokenizer_dir.empty()) {
      tokenizer = std::make_shared<const Tokenizer>(Tokenizer::from_dir(settings.tokenizer_dir));
    }
    LoadedFiles files = load_files(settings, topology);
    lengths = given_lengths(settings);
    check_prompts(topology, files.data);
    reward = make_reward(settings, std::move(tokenizer));
    return files;
  });
  std::optional<RlRun> run;  // its end may take long: the others hear of a failure before it
  return run_with_others(*started.session, [&](Session& session) {
    watch_stop_signals();
    return run.emplace(session, started.files, *started.model, *reward, lengths).run(std::move(point));
  });
}

}  // namespace ringfold
