#include "ringfold/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>

#include "ringfold/base/log.h"
#include "ringfold/data/order.h"
#include "ringfold/report/event_file.h"
#include "ringfold/report/timeline.h"
#include "ringfold/train/log_probs.h"
#include "ringfold/train/resume.h"
#include "ringfold/train/rl_fields.h"
#include "ringfold/train/run_checkpoints.h"
#include "ringfold/train/schedule.h"
#include "ringfold/train/setup.h"
#include "ringfold/train/step.h"
#include "ringfold/train/stop_signal.h"

namespace ringfold {
namespace {

void write_plan(const Session& session, int64_t step, const Plan& plan) {
  const std::string path = fmt::format("{}/plan_step_{}.json", session.settings.output_dir, step);
  std::ofstream file(path);
  file << plan_to_json(plan) << '\n';
  if (!file.flush()) {
    throw RunError(
        fmt::format("[train] {}: cannot write the plan: {}. Hint: is the disk full?", path, std::strerror(errno)));
  }
}

// What a dynamic run that only ever used one CP size is told at its end (docs/guide/troubleshooting.md).
void warn_if_single_size(const Session& session, const std::map<int, int64_t>& packs_by_size) {
  if (!session.is_main() || !session.topology.dynamic || session.topology.max_cp == 1) return;
  if (session.topology.policy == CpPolicy::kStatic || packs_by_size.size() != 1) return;
  log::warning(fmt::format(
      "every micro-batch ran at CP size {}: dynamic CP made no difference. Either all samples need the same size "
      "(their "
      "lengths vary too little, or --max-tokens-per-gpu {} is too large or too small for them), or each micro-batch "
      "holds one long sample or too few samples to split. `ringfold plan --data` shows the plan without training",
      packs_by_size.begin()->first, session.topology.budget));
}

class TrainingRun {
 public:
  TrainingRun(Session& session, LoadedFiles& files, DenseModel& model)
      : session_(session),
        files_(files),
        settings_(session.settings),
        model_(model),
        flat_(model.parameters(), shard_of(session.collectives())),
        optimizer_(flat_, {settings_.adam_beta1, settings_.adam_beta2, settings_.adam_eps, settings_.weight_decay}),
        state_{model, flat_, &optimizer_},
        checkpoints_(session) {
    if (settings_.dump_gradients.empty()) return;
    state_.on_gradients = [this](int64_t step) {
      if (step != first_step_) return;
      flat_.gather_gradients(session_.collectives());
      if (session_.is_main()) write_safetensors(settings_.dump_gradients, flat_.named_gradients());
    };
  }

  // From `point` (rank 0's), or from step 1.
  int run(std::optional<ResumePoint> point);

 private:
  void begin(std::optional<ResumePoint> point);
  void open_output();
  PreparedStep prepare(int64_t step) const;
  StepMetrics run_step(int64_t step, int64_t total, int64_t last);
  void evaluate_after(int64_t step);
  void save_after(int64_t step);

  Session& session_;
  LoadedFiles& files_;
  const RunSettings& settings_;
  DenseModel& model_;
  FlatParameters flat_;
  AdamW optimizer_;
  TrainState state_;
  RlFields rl_;
  int64_t first_step_ = 1;
  std::map<int, int64_t> packs_by_size_;
  int64_t peak_memory_bytes_ = 0;  // largest over ranks and steps
  RunCheckpoints checkpoints_;
  // Rank 0.
  std::unique_ptr<MetricsFile> metrics_file_, eval_file_, timelines_;
  std::unique_ptr<EventFile> events_;
  std::future<PreparedStep> next_;  // made while a step runs; the last member, so that it ends first
};

PreparedStep TrainingRun::prepare(int64_t step) const {
  const auto count = static_cast<int64_t>(files_.data.samples.size());
  const GlobalBatch chosen = global_batch(count, settings_.global_batch_size, step, settings_.seed, settings_.shuffle);
  StepBatch batch(files_.data, chosen.indices, settings_.loss_aggregation, settings_.loss_scale_factor);
  if (settings_.objective != Objective::kSft) batch.rl = &rl_;
  PreparedStep prepared = prepare_step(session_, std::move(batch), step);
  prepared.epochs_done = chosen.epochs_done;
  return prepared;
}

StepMetrics TrainingRun::run_step(int64_t step, int64_t total, int64_t last) {
  session_.enter("planning", step);
  const auto begin = std::chrono::steady_clock::now();
  PreparedStep prepared = next_.valid() ? next_.get() : prepare(step);
  prepared.waited_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (step < last) next_ = std::async(std::launch::async, [this, step] { return prepare(step + 1); });
  const double lr = learning_rate(settings_, step, total);
  const StepReport report = train_step(session_, state_, prepared, step, lr);

  if (!report.updated && session_.is_main()) {
    log::warning(fmt::format("step {}: no loss tokens in the batch; loss 0, weights unchanged", step));
  }
  session_.enter("logging", step);
  StepMetrics metrics = step_metrics(session_, files_.config, prepared.batch, report);
  metrics.step = step;
  metrics.lr = lr;
  metrics.epoch = prepared.epochs_done;
  for (const auto& [size, packs] : metrics.cp_histogram) packs_by_size_[size] += packs;
  peak_memory_bytes_ = std::max(peak_memory_bytes_, report.peak_memory_bytes);
  if (session_.is_main()) {
    if (settings_.dump_plans) write_plan(session_, step, report.plan);
    timelines_->append(to_json_line(make_timeline(step, 1e3 * report.step_ms, report.plan, report.pack_us)));
  }
  return metrics;
}

void TrainingRun::evaluate_after(int64_t step) {
  session_.enter("evaluation", step);
  const Evaluation evaluation = evaluate(*files_.eval_data, score_dataset(session_, model_, *files_.eval_data));
  if (!session_.is_main()) return;
  const EvalMetrics metrics{step, evaluation.loss, evaluation.accuracy};
  eval_file_->append(to_json_line(metrics));
  events_->append(step, scalars_of(metrics));
  log::info(fmt::format("ringfold: step {}: held-out loss {:.4f}, samples all right {:.1f} %", step, evaluation.loss,
                        100 * evaluation.accuracy));
}

void TrainingRun::save_after(int64_t step) {
  session_.enter("saving", step);
  CheckpointState state;
  state.step = step;
  state.packs_by_size = packs_by_size_;
  checkpoints_.save(std::move(state), model_, flat_, optimizer_, rl_);
}

void TrainingRun::open_output() {
  rewind_output(settings_.output_dir, first_step_ - 1);
  metrics_file_ = std::make_unique<MetricsFile>(settings_.output_dir + "/metrics.jsonl");
  timelines_ = std::make_unique<MetricsFile>(settings_.output_dir + "/timeline.jsonl");
  events_ = std::make_unique<EventFile>(settings_.output_dir + "/tensorboard");
  if (files_.eval_data) eval_file_ = std::make_unique<MetricsFile>(settings_.output_dir + "/eval.jsonl");
}

void TrainingRun::begin(std::optional<ResumePoint> point) {
  auto facts = run_facts(session_, files_);
  Resumed resumed = resume_run(session_, point, facts, flat_, optimizer_);
  first_step_ = resumed.step + 1;
  packs_by_size_ = std::move(resumed.packs_by_size);
  if (settings_.objective != Objective::kSft) {
    rl_ = rl_fields(session_, model_, files_.data, files_.reference ? &*files_.reference : nullptr,
                    std::move(resumed.rl));
    files_.reference.reset();  // its log-probs are all that the run needs of it
  }
  if (session_.is_main()) open_output();
  checkpoints_.open(std::move(facts));
  if (resumed.step == 0 && files_.eval_data && settings_.eval_interval > 0) evaluate_after(0);
}

int TrainingRun::run(std::optional<ResumePoint> point) {
  const auto count = static_cast<int64_t>(files_.data.samples.size());
  const int64_t total = total_steps(settings_, steps_per_epoch(count, settings_.global_batch_size));
  const int64_t last = settings_.stop_after_steps > 0 ? std::min(total, settings_.stop_after_steps) : total;
  begin(std::move(point));

  int signal = 0;
  Progress progress(last, session_.is_main() && settings_.progress);
  for (int64_t step = first_step_; step <= last && signal == 0; ++step) {
    const StepMetrics metrics = run_step(step, total, last);
    if (session_.is_main()) {
      metrics_file_->append(to_json_line(metrics));
      events_->append(step, scalars_of(metrics));
      progress.step(metrics);
    }
    signal = agreed_stop_signal(session_.collectives());
    const bool ends = step == last || signal != 0;
    const auto due = [&](int64_t interval) { return interval > 0 && step % interval == 0; };
    if (files_.eval_data && (due(settings_.eval_interval) || step == last) && signal == 0) evaluate_after(step);
    if (settings_.save && (due(settings_.save_interval) || ends)) save_after(step);
    if (settings_.async_save) checkpoints_.require_saved();
  }
  checkpoints_.finish();
  session_.enter("saving", last);
  if (session_.is_main()) {
    export_hf(model_, settings_.output_dir + "/hf");
    log::info(fmt::format("ringfold: weights in {}/hf, metrics in {}/metrics.jsonl", settings_.output_dir,
                          settings_.output_dir));
  }
  warn_if_single_size(session_, packs_by_size_);
  if (session_.is_main() && !session_.device.is_cpu() && peak_memory_bytes_ > 0) {
    compare_with_peak(memory_of_run(session_, files_), peak_memory_bytes_);
  }
  session_.collectives().barrier("end of the run");
  if (signal != 0 && session_.is_main()) {
    log::warning(fmt::format("stopped by signal {} after a whole step; the weights were written", signal));
  }
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace

int run_training(const RunSettings& settings) {
  std::optional<ResumePoint> point;
  StartedRun started = start_run(settings, [&](const Topology& topology) {
    if (settings.output_dir.empty()) throw UsageError("[settings] --output-dir is missing. Hint: --output-dir RUN");
    make_output_folder(settings.output_dir);
    if (read_launch_env().rank == Rank(0)) point = find_resume_point(settings);
    if (!settings.dump_gradients.empty()) require_writable(settings.dump_gradients, "--dump-gradients");
    return load_files(settings, topology);
  });
  std::optional<TrainingRun> run;  // its end may take long: the others hear of a failure before it
  return run_with_others(*started.session, [&](Session& session) {
    watch_stop_signals();
    return run.emplace(session, started.files, *started.model).run(std::move(point));
  });
}

}  // namespace ringfold
