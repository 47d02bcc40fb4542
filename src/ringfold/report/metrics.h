// What a run leaves for people and scripts: one JSON record a step in RUN/metrics.jsonl (docs/reference/metrics.md).
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ringfold {

struct StepMetrics {
  int64_t step = 0;  // 1-based
  double epoch = 0;  // 2.0 after two epochs
  double loss = 0;
  int64_t loss_tokens = 0;
  double grad_norm = 0;
  double lr = 0;
  std::vector<int64_t> samples;
  int64_t tokens = 0;  // real tokens
  int64_t sum_squared_tokens = 0;
  std::map<int, int64_t> cp_histogram;  // CP size -> packs
  std::map<int, double> cp_token_share;
  int64_t micro_steps = 0;
  double budget_use = 0;  // mean over packs of real load / budget
  double padding_waste = 0;
  std::vector<double> idle_share;  // per lane rank: share of the step without work or waiting
  double exposed_comm_ms = 0;      // largest over ranks
  // RL (absent for SFT).
  std::optional<double> policy_loss, kl_loss, ratio_max_dev, clip_fraction, dual_clip_fraction, approx_kl;
  std::optional<double> reward_mean, response_length_mean, response_length_max, truncated_ratio;
  std::optional<double> train_rollout_logprob_abs_diff, tis_mean, tis_clip_fraction;
  double entropy = 0;
  double plan_ms = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  double tflops_per_gpu = 0;
  std::optional<double> mfu;      // only where the device's peak is known
  int64_t peak_memory_bytes = 0;  // CPU: largest max RSS over ranks
};

// One line without its end. A number that is not finite becomes null, absent fields are left out.
std::string to_json_line(const StepMetrics& metrics);

// One record of RUN/eval.jsonl: held-out samples scored after `step` steps (0: the model as it came).
struct EvalMetrics {
  int64_t step = 0;
  double loss = 0;      // mean -log p over loss tokens, nats
  double accuracy = 0;  // share of samples all of whose loss tokens are the model's first choice
};

std::string to_json_line(const EvalMetrics& metrics);

// One record of RUN/rollouts.jsonl: what the policy of `ringfold rl` did between two trainings.
struct RolloutMetrics {
  int64_t rollout = 0;     // 1-based
  int64_t first_step = 0;  // the optimizer steps made on it; last_step < first_step: none
  int64_t last_step = 0;
  int64_t prompts = 0;
  int64_t responses = 0;
  int64_t dropped_groups = 0;  // by --dynamic-sampling-filter
  double reward_mean = 0;      // over all responses, dropped ones too
  double reward_std = 0;
  double response_length_mean = 0;
  double truncated_ratio = 0;
  int64_t tokens = 0;               // of the responses trained on, prompts included
  int64_t held_bytes_training = 0;  // memory of rank 0 before it sleeps, and while it samples
  int64_t held_bytes_sampling = 0;
  double generate_ms = 0, reward_ms = 0, log_probs_ms = 0, train_ms = 0, total_ms = 0;
  double train_tokens_per_s = 0;       // tokens / train time
  double end_to_end_tokens_per_s = 0;  // tokens / total time
};

std::string to_json_line(const RolloutMetrics& metrics);

// Appends records, flushed one by one. Throws RunError naming the file (disk full, no permission).
class MetricsFile {
 public:
  explicit MetricsFile(const std::string& path);
  void append(const std::string& record);  // one JSON line

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

// A line a step on stderr: a bar on a terminal (rewritten in place), plain lines otherwise.
class Progress {
 public:
  Progress(int64_t total_steps, bool enabled);  // total_steps: the number of the run's last step, for share and ETA
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(const StepMetrics& metrics);

 private:
  int64_t total_steps_;
  bool enabled_, terminal_;
  bool bar_open_ = false;  // the cursor stands in the bar's line
  int64_t steps_seen_ = 0;
  double elapsed_ms_ = 0;
};

// The start-up table: rows of (name, value) in a box, on stderr.
std::string table_text(const std::string& title, const std::vector<std::pair<std::string, std::string>>& rows);
void print_table(const std::string& title, const std::vector<std::pair<std::string, std::string>>& rows);

}  // namespace ringfold
