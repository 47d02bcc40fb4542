#include "ringfold/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "ringfold/base/log.h"
#include "ringfold/data/order.h"
#include "ringfold/report/event_file.h"
#include "ringfold/train/log_probs.h"
#include "ringfold/train/rl_fields.h"
#include "ringfold/train/schedule.h"
#include "ringfold/train/setup.h"
#include "ringfold/train/step.h"

namespace ringfold {
namespace {

volatile std::sig_atomic_t stop_signal = 0;
void remember_signal(int signal) {
  stop_signal = signal;
}

// Whether any rank was asked to stop; all ranks agree, so that none is left waiting in the next step.
int agreed_stop_signal(Session& session) {
  const auto signals = session.collectives().all_gather_double(stop_signal, "stop signal");
  return static_cast<int>(*std::max_element(signals.begin(), signals.end()));
}

void write_plan(const Session& session, int64_t step, const Plan& plan) {
  const std::string path = fmt::format("{}/plan_step_{}.json", session.settings.output_dir, step);
  std::ofstream file(path);
  file << plan_to_json(plan) << '\n';
  if (!file.flush()) throw RunError(fmt::format("[train] cannot write {}. Hint: is the disk full?", path));
}

// Two runs must not mix their records; --resume is not built yet. Rank 0 looks, before it writes anything.
void refuse_second_run(const RunSettings& settings) {
  if (read_launch_env().rank != Rank(0)) return;
  const std::string file = settings.output_dir + "/metrics.jsonl";
  if (!std::filesystem::exists(file)) return;
  throw UsageError(fmt::format(
      "[settings] --output-dir {}: holds a run already ({}). Hint: choose another folder, or remove this one",
      settings.output_dir, file));
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
        flat_(model.parameters()),
        optimizer_(flat_, {settings_.adam_beta1, settings_.adam_beta2, settings_.adam_eps, settings_.weight_decay}),
        state_{model, flat_, &optimizer_} {
    if (session.is_main() && !settings_.dump_gradients.empty()) {
      state_.on_gradients = [this](int64_t step) {
        if (step == 1) write_safetensors(settings_.dump_gradients, flat_.named_gradients());
      };
    }
  }

  int run();

 private:
  StepMetrics run_step(int64_t step, int64_t total);
  void evaluate_after(int64_t step, MetricsFile* file);

  Session& session_;
  LoadedFiles& files_;
  const RunSettings& settings_;
  DenseModel& model_;
  FlatParameters flat_;
  AdamW optimizer_;
  TrainState state_;
  RlFields rl_;
  std::map<int, int64_t> packs_by_size_;
  std::unique_ptr<EventFile> events_;  // rank 0
};

StepMetrics TrainingRun::run_step(int64_t step, int64_t total) {
  const auto count = static_cast<int64_t>(files_.data.samples.size());
  const GlobalBatch chosen = global_batch(count, settings_.global_batch_size, step, settings_.seed, settings_.shuffle);
  StepBatch batch(files_.data, chosen.indices, settings_.loss_aggregation);
  if (settings_.objective == Objective::kGrpo) batch.rl = &rl_;
  const double lr = learning_rate(settings_, step, total);
  const StepReport report = train_step(session_, state_, batch, step, lr);

  if (!report.updated && session_.is_main()) {
    log::warning(fmt::format("step {}: no loss tokens in the batch; loss 0, weights unchanged", step));
  }
  StepMetrics metrics = step_metrics(session_, files_.config, batch, report);
  metrics.step = step;
  metrics.lr = lr;
  metrics.epoch = chosen.epochs_done;
  for (const auto& [size, packs] : metrics.cp_histogram) packs_by_size_[size] += packs;
  if (session_.is_main()) {
    if (settings_.dump_plans) write_plan(session_, step, report.plan);
  }
  return metrics;
}

void TrainingRun::evaluate_after(int64_t step, MetricsFile* file) {
  const Evaluation evaluation = evaluate(*files_.eval_data, score_dataset(session_, model_, *files_.eval_data));
  if (!session_.is_main()) return;
  const EvalMetrics metrics{step, evaluation.loss, evaluation.accuracy};
  file->append(to_json_line(metrics));
  events_->append(step, scalars_of(metrics));
  log::info(fmt::format("ringfold: step {}: held-out loss {:.4f}, samples all right {:.1f} %", step, evaluation.loss,
                        100 * evaluation.accuracy));
}

int TrainingRun::run() {
  if (settings_.objective == Objective::kGrpo) rl_ = rl_fields(session_, model_, files_.data);
  const auto count = static_cast<int64_t>(files_.data.samples.size());
  const int64_t total = total_steps(settings_, steps_per_epoch(count, settings_.global_batch_size));
  const int64_t last = settings_.stop_after_steps > 0 ? std::min(total, settings_.stop_after_steps) : total;

  std::unique_ptr<MetricsFile> metrics_file, eval_file;
  if (session_.is_main()) {
    metrics_file = std::make_unique<MetricsFile>(settings_.output_dir + "/metrics.jsonl");
    events_ = std::make_unique<EventFile>(settings_.output_dir + "/tensorboard");
    if (files_.eval_data) eval_file = std::make_unique<MetricsFile>(settings_.output_dir + "/eval.jsonl");
  }
  if (files_.eval_data && settings_.eval_interval > 0) evaluate_after(0, eval_file.get());
  int signal = 0;
  Progress progress(last, session_.is_main() && settings_.progress);
  for (int64_t step = 1; step <= last && signal == 0; ++step) {
    const StepMetrics metrics = run_step(step, total);
    if (session_.is_main()) {
      metrics_file->append(to_json_line(metrics));
      events_->append(step, scalars_of(metrics));
      progress.step(metrics);
    }
    signal = agreed_stop_signal(session_);
    const bool due = settings_.eval_interval > 0 && step % settings_.eval_interval == 0;
    if (files_.eval_data && (due || step == last) && signal == 0) evaluate_after(step, eval_file.get());
  }
  if (session_.is_main()) {
    export_hf(model_, settings_.output_dir + "/hf");
    log::info(fmt::format("ringfold: weights in {}/hf, metrics in {}/metrics.jsonl", settings_.output_dir,
                          settings_.output_dir));
  }
  warn_if_single_size(session_, packs_by_size_);
  session_.collectives().barrier("end of the run");
  if (signal != 0 && session_.is_main()) {
    log::warning(fmt::format("stopped by signal {} after a whole step; the weights were written", signal));
  }
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace

int run_training(const RunSettings& settings) {
  LoadedFiles files;
  std::unique_ptr<DenseModel> model;
  const std::unique_ptr<Session> started = start_session(settings, [&](const Topology& topology) {
    if (settings.output_dir.empty()) throw UsageError("[settings] --output-dir is missing. Hint: --output-dir RUN");
    std::error_code error;
    std::filesystem::create_directories(settings.output_dir, error);
    if (error) {
      throw UsageError(fmt::format("[settings] --output-dir {}: {}. Hint: choose a folder you may write to",
                                   settings.output_dir, error.message()));
    }
    refuse_second_run(settings);
    if (!settings.dump_gradients.empty()) require_writable(settings.dump_gradients, "--dump-gradients");
    files = load_files(settings, topology);
    model = make_model(settings, files.config);
  });
  require_same_run(*started, run_facts(*started, files, *model));
  print_startup(*started, files);
  std::signal(SIGTERM, remember_signal);
  std::signal(SIGINT, remember_signal);
  return TrainingRun(*started, files, *model).run();
}

}  // namespace ringfold
