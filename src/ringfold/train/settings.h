// What the user asked for about a run. One member a flag (docs/reference/flags.md); no torch here, so that the command
// line stays quick to build.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ringfold/plan/settings.h"

namespace ringfold {

enum class Objective {
  kSft,
  kPpo,
  kGrpo,
  kDrGrpo,
  kRloo,
  kReinforcePlusPlus,
  kReinforcePlusPlusBaseline,
  kGspo,
  kCispo,
};
// How token losses add up (spec 6); weights are fixed before the step.
enum class LossAggregation { kTokenMean, kSeqMeanTokenSum, kSeqMeanTokenMean, kDrGrpo };
// Where advantages come from (train/advantages.h); kByObjective: the objective's own.
enum class AdvantageEstimator {
  kByObjective,
  kData,
  kGrpo,
  kDrGrpo,
  kRloo,
  kReinforcePlusPlus,
  kReinforcePlusPlusBaseline
};
// Estimators of the KL divergence from the reference (train/kl.h); kByUse: k3 as a loss, k1 as a reward.
enum class KlType { kByUse, kK1, kK2, kK3, kLowVarKl };
enum class LrDecay { kConstant, kCosine };

struct RunSettings {
  ParallelSettings parallel;

  // Model: exactly one of model_dir and model_config.
  std::string model_dir;     // --model: Hugging Face folder
  std::string model_config;  // --model-config: config.json, weights drawn from init_seed
  uint64_t init_seed = 0;
  std::string dtype = "float32";          // float32 | float64 | bfloat16 (GPU only)
  std::string device = "cpu";             // cpu | cuda
  std::string recompute = "none";         // none | selective (GPU) | full
  std::string attention_kernel = "auto";  // auto | flash | cudnn | reference

  // What plans take their times from: a built-in cost model or a FILE.toml; empty: an H200 with this run's model.
  std::string cost_model;

  // Data.
  std::string data_file;
  std::string tokenizer_dir;   // --tokenizer: for samples that are text; empty: they are refused
  std::string eval_data_file;  // --eval-data: scored every eval_interval steps and at the end
  int64_t eval_interval = 0;
  bool skip_bad_samples = false;
  bool shuffle = true;
  uint64_t seed = 0;

  // Training.
  Objective objective = Objective::kSft;
  AdvantageEstimator advantage_estimator = AdvantageEstimator::kByObjective;
  LossAggregation loss_aggregation = LossAggregation::kTokenMean;
  bool loss_aggregation_given = false;
  double loss_scale_factor = 0;   // dr-grpo: tokens that a sample's sum is divided by; 0: the data's longest response
  int64_t global_batch_size = 0;  // samples a step; 0: the whole file
  int64_t max_steps = 0;          // 0: given by epochs; with both, whichever ends first
  double epochs = 0;              // 0: not given (one epoch when max_steps is not given either)
  int64_t stop_after_steps = 0;   // stop early, schedule unchanged; 0: no
  double lr = 1e-5;
  double min_lr = 0;
  int64_t lr_warmup_steps = 0;
  LrDecay lr_decay_style = LrDecay::kConstant;
  double weight_decay = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.95;
  double adam_eps = 1e-8;
  double clip_grad = 1.0;  // global norm; 0: off
  double eps_clip = 0.2;
  double eps_clip_high = 0;  // 0: the same as eps_clip
  double eps_clip_c = 0;     // dual clip; 0: off
  double entropy_coef = 0;
  bool use_kl_loss = false;  // KL from the reference as a loss
  double kl_loss_coef = 0;
  double kl_coef = 0;  // KL from the reference as a reward
  KlType kl_loss_type = KlType::kByUse;
  std::string ref_load;  // --ref-load: folder of the reference model; empty: the weights as they are at the start
  bool normalize_advantages = false;
  double gamma = 1;  // discount of reinforce_plus_plus
  double temperature = 1.0;
  bool use_rollout_logprobs = false;
  bool use_tis = false;  // truncated importance weights against the rollout engine
  double tis_clip = 2;
  double tis_clip_low = 0;
  int64_t log_prob_chunk_tokens = 1024;

  // The loop of `rl`; samples of data_file are prompts with a reference response.
  int64_t num_rollout = 0;
  int64_t rollout_batch_size = 32;   // prompts a rollout
  int64_t n_samples_per_prompt = 8;  // responses a prompt: a group
  int64_t rollout_max_response_len = 256;
  int64_t rollout_top_k = 0;  // 0: all tokens
  double rollout_top_p = 1;
  std::vector<int64_t> rollout_stop_token_ids;
  int64_t rollout_max_sequences = 64;  // decoded at a time by one rank
  bool rollout_enforce_eager = false;  // on a GPU: no recorded steps
  std::string
      rollout_lengths_file;       // for measurements: response lengths of the run, in turn; empty: until a stop token
  std::string rm_type = "exact";  // exact | numeric | program
  std::string rm_program;
  bool offload_train = false;            // what training alone needs leaves the device while responses are sampled
  bool dynamic_sampling_filter = false;  // leave out groups whose rewards are all equal
  // Checkpoints, in output_dir/checkpoints. `rl` counts rollouts where `train` counts steps.
  bool save = true;              // at the end of the run, and every save_interval steps
  int64_t save_interval = 0;     // 0: only at the end
  int64_t save_total_limit = 0;  // newest ones kept; 0: all
  bool async_save = false;       // written in the background
  std::string resume = "never";  // never | auto | folder of a checkpoint or of a run

  // Running and output.
  std::string output_dir;
  std::string output_file;  // logprob: --output
  double comm_timeout_seconds = 600;
  bool dump_plans = false;
  std::string dump_gradients;  // .safetensors of the first step's gradients
  std::string log_level = "info";
  bool progress = true;  // a progress bar when stderr is a terminal
};

}  // namespace ringfold
