#include "flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "flag_table.h"
#include "flag_values.h"
#include "ringfold/plan/length_laws.h"
#include "ringfold/plan/passes.h"
#include "ringfold/plan/policy_names.h"
#include "ringfold/train/objective_names.h"

namespace ringfold {
namespace {

constexpr int64_t kMaxRanks = int64_t{1} << 20;
constexpr int64_t kMaxTokens = int64_t{1} << 40;

template <typename... Commands>
constexpr unsigned bits(Commands... commands) {
  return ((1u << static_cast<unsigned>(commands)) | ...);
}
constexpr unsigned kPlan = bits(Command::kPlan), kSimulate = bits(Command::kSimulate), kTrain = bits(Command::kTrain),
                   kLogprob = bits(Command::kLogprob), kParity = bits(Command::kParity), kBench = bits(Command::kBench),
                   kRl = bits(Command::kRl), kReport = bits(Command::kReport), kConvert = bits(Command::kConvert),
                   kLaunch = bits(Command::kLaunch), kDoctor = bits(Command::kDoctor);
constexpr unsigned kDryRuns = kPlan | kSimulate;                        // commands that only plan
constexpr unsigned kRuns = kTrain | kLogprob | kParity | kBench | kRl;  // commands that run a model
constexpr unsigned kSteps = kTrain | kParity | kBench | kRl;            // ... forward and backward
constexpr unsigned kUpdates = kTrain | kRl;                             // ... and learn

// Takes a comma-separated list of names.
std::function<void(const std::string&, const std::string&)> list_of(const std::vector<std::string>& names,
                                                                    std::vector<std::string>& target) {
  return [known = Choices{names, {}}, &target](const std::string& text, const std::string& where) {
    target.clear();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      target.push_back(known.names[parse_choice(text.substr(begin, end - begin), where, known)]);
      begin = end + 1;
    }
  };
}

void add_parallel(FlagTable& table, RunSettings& run, CommandOptions& options) {
  ParallelSettings& s = run.parallel;
  table.in("Parallelism", kPlan | kRuns)
      .toggle("dynamic-context-parallel", "choose the CP size of every micro-batch", s.dynamic_context_parallel)
      .toggle("use-dynamic-batch-size", "pack samples up to --max-tokens-per-gpu instead of one sample a micro-batch",
              s.use_dynamic_batch_size)
      .toggle("calculate-per-token-loss", "losses add up as token sums (always so; required by dynamic CP)",
              s.calculate_per_token_loss)
      .by(kDryRuns | kRuns)
      .integer("rollout-max-context-len", "longest sample accepted, prompt and response, in tokens",
               s.rollout_max_context_len, 1, kMaxTokens)
      .integer("max-tokens-per-gpu", "token budget of one GPU in a micro-step, after the CP split",
               s.max_tokens_per_gpu, 1, kMaxTokens)
      .by(kPlan | kRuns)
      .integer("log-probs-max-tokens-per-gpu", "the same for forward-only passes [--max-tokens-per-gpu]",
               s.log_probs_max_tokens_per_gpu, 1, kMaxTokens)
      .by(kDryRuns | kRuns)
      .integer("tensor-model-parallel-size", "tensor parallel size; above 1: only plan and simulate [1]",
               s.tensor_model_parallel_size, 1, kMaxRanks)
      .integer("pipeline-model-parallel-size", "pipeline parallel size; above 1: only plan and simulate [1]",
               s.pipeline_model_parallel_size, 1, kMaxRanks)
      .by(kPlan | kRuns)
      .integer("context-parallel-size", "CP size when it is not dynamic [1]", s.context_parallel_size, 1, kMaxRanks,
               &s.context_parallel_size_given)
      .by(kDryRuns | kRuns)
      .choice("execution",
              "lockstep: as many micro-steps on every rank; free: each rank runs its queue [free with mixed, else "
              "lockstep; simulate: both]",
              {{"lockstep", "free"}, {}},
              [&s](size_t index) {
                s.execution = index == 0 ? Execution::kLockstep : Execution::kFree;
                s.execution_given = true;
              })
      .choice("cp-comm-type", "attention under CP: ring, gathered keys and values, or all-to-all [p2p]",
              {{"p2p", "all_gather", "a2a"}, {}},
              [&s](size_t index) { s.cp_comm_type = static_cast<CpCommType>(index); })
      .not_built("sequence-parallel", "leave it out; activations are sharded by context parallelism")
      .not_built("expert-model-parallel-size", "only dense models are built");
  // bench has its own list of policies.
  table.by(kPlan | kTrain | kLogprob | kParity | kRl)
      .choice("cp-policy", "how CP sizes are chosen [uniform with dynamic CP, else static]",
              {{"static", "uniform", "mixed"}, {}},
              [&s](size_t index) {
                s.cp_policy = static_cast<CpPolicy>(index);
                s.cp_policy_given = true;
              })
      .choice("static-balance", "what --cp-policy static balances; arrival: nothing [tokens]",
              {{"tokens", "work", "arrival"}, {}},
              [&s](size_t index) { s.static_balance = static_cast<PackBalance>(index); });
  table.by(kDryRuns | kReport | kRuns)
      .text("cost-model", fmt::format("{}|FILE.toml", fmt::join(cost_model_choices(), "|")),
            "what packs are predicted to cost [runs: an H200 with their model; plan, simulate, report: qwen3-4b]",
            run.cost_model);
  table.by(kDryRuns).integer("world-size", "number of ranks to plan for (other commands take it from their launcher)",
                             s.world_size, 1, kMaxRanks, &options.world_size_given);
}

void add_data(FlagTable& table, RunSettings& s, CommandOptions& options) {
  table.in("Data", kDryRuns | kRuns)
      .text("data", "FILE", "samples, token ids or text: .jsonl or .jsonl.gz (docs/reference/data.md)", s.data_file)
      .text("tokenizer", "DIR", "Hugging Face folder whose tokenizer reads samples that are text", s.tokenizer_dir)
      .toggle("skip-bad-samples", "leave bad samples out and count them, instead of ending", s.skip_bad_samples)
      .integer("global-batch-size", "samples of one optimizer step [all]", s.global_batch_size, 1);
  table.by(kDryRuns).text("lengths", "L,L,...", "sample lengths in tokens, instead of a file", options.lengths,
                          FlagKind::kList);
  table.by(kDryRuns | kBench)
      .list("lengths-file", "FILE", "sample lengths: one a line, or separated by commas",
            [&options](const std::string& text, const std::string& where) {
              options.lengths_file = options.bench.lengths_file = parse_text(text, where);
            });
  table.by(kDryRuns | kSteps)
      .toggle("shuffle", "shuffle the samples each epoch [plan, simulate: no, else yes]", s.shuffle)
      .toggle("no-shuffle", "take the samples in file order", s.shuffle, false)
      .seed("seed", "seed of the shuffle, of laws and of random samples [0]", s.seed);
  table.by(kTrain)
      .text("eval-data", "FILE", "held-out samples, scored every --eval-interval steps and at the end",
            s.eval_data_file)
      .integer("eval-interval", "steps between evaluations [only at the end]", s.eval_interval, 1);
}

void add_model(FlagTable& table, RunSettings& s) {
  table.in("Model", kRuns)
      .text("model", "DIR", "Hugging Face folder: config.json and safetensors", s.model_dir)
      .text("model-config", "FILE", "config.json; weights are drawn from --init-seed", s.model_config)
      .seed("init-seed", "seed of random weights [0]", s.init_seed)
      .choice("dtype", "type of weights and activations", {{"float32", "float64", "bfloat16"}, {"float16"}}, s.dtype)
      .choice("device", "where tensors live", {{"cpu", "cuda"}, {}}, s.device)
      .choice("attention-kernel", "fused kernel (flash, or cuDNN's on a GPU), or plain operations",
              {{"auto", "flash", "cudnn", "reference"}, {}}, s.attention_kernel)
      .integer("log-prob-chunk-tokens", "rows of logits held at a time [1024]", s.log_prob_chunk_tokens, 1, kMaxTokens)
      .number("temperature", "logits are divided by it", s.temperature, 1e-6);
  table.by(kSteps).choice("recompute",
                          "selective: norms and activations again in backward (GPU); full: keep only layer inputs",
                          {{"none", "selective", "full"}, {}}, s.recompute);
}

void add_objective(FlagTable& table, RunSettings& s) {
  table.in("Objective", kSteps)
      .choice("objective", "sft, or the method of an RL step (docs/algorithms_rl.md) [sft]",
              {objective_names(), {"dpo", "distill"}},
              [&s](size_t index) { s.objective = static_cast<Objective>(index); })
      .choice("advantage-estimator", "how advantages follow from rewards; data: they are given [by --objective]",
              {advantage_estimator_names(), {"gae"}},
              [&s](size_t index) { s.advantage_estimator = static_cast<AdvantageEstimator>(index + 1); })
      .choice("loss-aggregation",
              "how token losses add up [dr_grpo: dr-grpo, gspo: seq-mean-token-mean, else token-mean]",
              {{"token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "dr-grpo"}, {}},
              [&s](size_t index) {
                s.loss_aggregation = static_cast<LossAggregation>(index);
                s.loss_aggregation_given = true;
              })
      .number("loss-scale-factor", "tokens a sample's sum is divided by with dr-grpo; 0: the longest response",
              s.loss_scale_factor, 0)
      .number("eps-clip", "lower clip range of the probability ratio", s.eps_clip, 0, 1)
      .number("eps-clip-high", "upper clip range; 0: the same as --eps-clip", s.eps_clip_high, 0)
      .number("eps-clip-c", "dual clip: bound on the ratio where the advantage is negative; 0: none", s.eps_clip_c, 0)
      .toggle("use-rollout-logprobs", "take rollout_log_probs of the data as old log-probs", s.use_rollout_logprobs)
      .toggle("use-tis", "weigh tokens by old over rollout probability, truncated", s.use_tis)
      .number("tis-clip", "largest such weight", s.tis_clip, 0)
      .number("tis-clip-low", "smallest such weight", s.tis_clip_low, 0)
      .toggle("use-kl-loss", "add the KL divergence from the reference to the loss", s.use_kl_loss)
      .number("kl-loss-coef", "its coefficient; 0: only reported", s.kl_loss_coef, 0)
      .number("kl-coef", "coefficient of the same KL as a part of the reward; 0: none", s.kl_coef, 0)
      .choice("kl-loss-type", "estimator of that KL [loss: k3, reward: k1]", {{"k1", "k2", "k3", "low_var_kl"}, {}},
              [&s](size_t index) { s.kl_loss_type = static_cast<KlType>(index + 1); })
      .text("ref-load", "DIR", "Hugging Face folder of the reference model [the weights at the start]", s.ref_load)
      .number("entropy-coef", "coefficient of the entropy bonus", s.entropy_coef, 0)
      .toggle("normalize-advantages", "whiten advantages over all loss tokens", s.normalize_advantages)
      .number("gamma", "discount of reinforce_plus_plus", s.gamma, 0, 1);
}

void add_training(FlagTable& table, RunSettings& s) {
  table.in("Training", kTrain)
      .integer("max-steps", "optimizer steps [by --epochs]", s.max_steps, 1)
      .number("epochs", "passes over the data; 0: one, unless --max-steps is given", s.epochs, 0)
      .integer("stop-after-steps", "stop early, schedule unchanged [no]", s.stop_after_steps, 1)
      .by(kUpdates)
      .number("lr", "peak learning rate", s.lr, 0)
      .number("min-lr", "where cosine decay ends", s.min_lr, 0)
      .integer("lr-warmup-steps", "steps of linear warm-up [0]", s.lr_warmup_steps, 0)
      .choice("lr-decay-style", "learning rate after the warm-up [constant]", {{"constant", "cosine"}, {}},
              [&s](size_t index) { s.lr_decay_style = static_cast<LrDecay>(index); })
      .number("weight-decay", "decoupled weight decay of matrices", s.weight_decay, 0)
      .number("adam-beta1", "first-moment decay of AdamW", s.adam_beta1, 0, 1)
      .number("adam-beta2", "second-moment decay of AdamW", s.adam_beta2, 0, 1)
      .number("adam-eps", "added to the root of the second moment", s.adam_eps, 0)
      .number("clip-grad", "largest global gradient norm; 0: no clipping", s.clip_grad, 0);
}

void add_checkpoints(FlagTable& table, RunSettings& s) {
  table.in("Checkpoints", kUpdates)
      .integer("save-interval",
               "steps, of rl rollouts, between checkpoints; one is always written at the end [only at the end]",
               s.save_interval, 1)
      .integer("save-total-limit", "newest checkpoints kept [all]", s.save_total_limit, 1)
      .toggle("async-save", "write checkpoints in the background, from a copy in host memory", s.async_save)
      .toggle("no-save", "write no checkpoint, only the weights at the end", s.save, false)
      .text("resume", "auto|never|PATH",
            "go on from the newest whole checkpoint of --output-dir, or from RUN/checkpoints/step_N [never]", s.resume);
}

void add_output(FlagTable& table, RunSettings& s, CommandOptions& options) {
  table.in("Output", kUpdates | kDoctor)
      .text("output-dir", "RUN", "folder of metrics, plans and checkpoints", s.output_dir);
  table.by(kTrain)
      .toggle("dump-plans", "write each step's plan to RUN/plan_step_N.json", s.dump_plans)
      .text("dump-gradients", "FILE", "gradients of the first step, before clipping (.safetensors)", s.dump_gradients)
      .by(kUpdates)
      .toggle("progress", "show each step on stderr [yes]", s.progress)
      .toggle("no-progress", "do not show steps", s.progress, false);
  table.by(kLogprob).text("output", "FILE", "log-probs, one record a sample (.jsonl)", s.output_file);
  table.by(kConvert).text("output", "DIR", "Hugging Face folder to write", options.output_dir);
  table.by(kDryRuns | kParity | kBench | kDoctor).toggle("json", "print the result as JSON", options.json);
  table.by(kRuns | kDoctor)
      .number("comm-timeout-seconds", "a silent rank ends the job after this", s.comm_timeout_seconds, 0.1, 1e6);
  table.by(kDryRuns | kRuns | kReport | kConvert | kDoctor)
      .choice("log-level", "what is logged on stderr", {{"debug", "info", "warning", "error", "off"}, {}}, s.log_level);
}

void add_rollout(FlagTable& table, RunSettings& s) {
  table.in("Rollout", kRl)
      .integer("num-rollout", "rollouts of the run", s.num_rollout, 1)
      .integer("rollout-batch-size", "prompts of a rollout [32]", s.rollout_batch_size, 1)
      .integer("n-samples-per-prompt", "responses to a prompt: a group [8]", s.n_samples_per_prompt, 1, 1 << 20)
      .integer("rollout-max-response-len", "longest response, in tokens [256]", s.rollout_max_response_len, 1,
               kMaxTokens)
      .list("rollout-stop-token-ids", "ID,ID,...", "tokens that end a response",
            [&s](const std::string& text, const std::string& where) {
              s.rollout_stop_token_ids = parse_integers(text, where, 0, kMaxTokens);
            })
      .integer("rollout-top-k", "draw among the K likeliest tokens [all]", s.rollout_top_k, 1, kMaxTokens)
      .number("rollout-top-p", "draw among the likeliest tokens that together have this probability", s.rollout_top_p,
              1e-6, 1)
      .integer("rollout-max-sequences", "responses that one rank decodes at a time [64]", s.rollout_max_sequences, 1,
               1 << 20)
      .toggle("rollout-enforce-eager", "decode without recorded steps (CUDA graphs)", s.rollout_enforce_eager)
      .text("rollout-lengths-file", "FILE",
            "for measurements: response lengths of the run, in turn, whatever is drawn (docs/guide/rl.md)",
            s.rollout_lengths_file)
      .choice("rm-type", "reward: response equal to the data's, last number equal, or a program",
              {{"exact", "numeric", "program"}, {}}, s.rm_type)
      .text("rm-program", "COMMAND", "judge for --rm-type program: JSON lines in and out (docs/guide/rl.md)",
            s.rm_program)
      .toggle("offload-train", "gradients, optimizer state and masters leave the device while responses are sampled",
              s.offload_train)
      .toggle("dynamic-sampling-filter", "leave out groups whose rewards are all equal", s.dynamic_sampling_filter);
}

void add_single_commands(FlagTable& table, CommandOptions& options) {
  table.in("Report", kReport)
      .text("output", "FILE", "where the page goes [report.html in RUN]", options.report_file)
      .integer("step", "the step whose ranks are drawn [the last that left a timeline]", options.step, 1, kNoLimit,
               &options.step_given);
  table.in("Plan", kPlan)
      .integer("step", "the step to plan, 1-based; needs --global-batch-size [1]", options.step, 1, kNoLimit,
               &options.step_given)
      .text("html", "FILE", "write a page with the picture of the plan, beside static CP (opens offline)",
            options.html_file)
      .by(kPlan | kReport)
      .text("trace", "FILE", "write a Chrome trace of the ranks, for Perfetto (ui.perfetto.dev)", options.trace_file)
      .by(kDryRuns)
      .toggle("timing", "add the time that planning took, and each pass of `mixed`", options.timing)
      .list("skip-passes", "P,P,...", fmt::format("passes of `mixed` to leave out: {}", fmt::join(pass_names(), ", ")),
            list_of(pass_names(), options.skip_passes));
  std::vector<std::string> laws;
  for (const LengthLawInfo& law : length_laws()) laws.emplace_back(law.name);
  table.in("Laws", kDryRuns | kBench)
      .choice("law", "draw the lengths from a seeded law (docs/benchmarks/planner.md) [no]", {laws, {}},
              [&options, laws](size_t index) { options.law = options.bench.law = laws[index]; })
      .integer("samples", fmt::format("samples drawn from --law [{}]", options.bench.law_samples),
               options.bench.law_samples, 1, int64_t{1} << 24);
  table.in("Simulate", kSimulate)
      .integer("max-simulated-steps", "global batches to play through [the epoch]", options.simulated_steps, 1)
      .number("noise", "spread of a pack's time around its prediction, as a standard deviation of the logarithm",
              options.noise, 0, 1)
      .list("compare", "P,P,...",
            fmt::format("policies side by side, the first is the baseline: {} [{}]", fmt::join(policy_choices(), ", "),
                        fmt::join(options.compare, ",")),
            list_of(policy_choices(), options.compare));
  BenchSettings& bench = options.bench;
  table.in("Bench", kBench)
      .list("policies", "P,P,...",
            fmt::format("policies to alternate; the first is the baseline [{}]", fmt::join(bench.policies, ",")),
            list_of(policy_choices(), bench.policies))
      .integer("steps", fmt::format("steps measured for each policy, or runs of each pack [{}]", bench.steps),
               bench.steps, 1)
      .integer("warmup-steps", fmt::format("steps run before and thrown away [{}]", bench.warmup_steps),
               bench.warmup_steps, 0)
      .text("calibrate", "FILE.toml", "time packs of its own and fit a --cost-model to them, instead of policies",
            bench.calibrate)
      .text("timeline", "FILE", "measured timeline of each policy's last step, one JSON line each", bench.timeline)
      .text("profile", "FILE", "kernel times of one more step of each policy (GPU)", bench.profile)
      .toggle("update", "update the weights too, as training does [no]", bench.update)
      .number("peak-tflops", "peak TFLOP/s of one device, for MFU; 0: not shown", bench.peak_tflops, 0);
  table.in("Convert", kConvert).text("llama2c", "FILE", "checkpoint of llama2.c (legacy .bin)", options.llama2c_file);
  table.in("Launch", kLaunch)
      .integer("processes", "number of ranks on this machine", options.launch_processes, 1, kMaxRanks);
}

}  // namespace

std::vector<Flag> make_flags(RunSettings& settings, CommandOptions& options) {
  FlagTable table;
  add_parallel(table, settings, options);
  add_data(table, settings, options);
  add_model(table, settings);
  add_objective(table, settings);
  add_training(table, settings);
  add_checkpoints(table, settings);
  add_output(table, settings, options);
  add_rollout(table, settings);
  add_single_commands(table, options);
  return table.take();
}

}  // namespace ringfold
