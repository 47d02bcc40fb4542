#include "ringfold/train/setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "ringfold/base/hash.h"
#include "ringfold/base/log.h"
#include "ringfold/data/jsonl.h"
#include "ringfold/report/cost_model_file.h"
#include "ringfold/report/metrics.h"
#include "ringfold/train/objective_check.h"
#include "ringfold/train/planning.h"

namespace ringfold {
namespace {

at::ScalarType dtype_of(const RunSettings& settings) {
  if (settings.dtype == "float64") return at::kDouble;
  return settings.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

Dataset load_data(const RunSettings& settings, const SampleLimit& limit, const ModelConfig& config,
                  const std::shared_ptr<const Tokenizer>& tokenizer, const std::string& file) {
  DataOptions options;
  options.vocab_size = config.vocab_size;
  options.max_tokens = limit.tokens;
  if (limit.tokens > 0) options.max_tokens_flags = limit.flags;
  options.skip_bad_samples = settings.skip_bad_samples;
  options.tokenizer = tokenizer;
  return load_jsonl(file, options);
}

SampleLimit largest_pack(const Topology& topology, std::string_view flag, int64_t budget) {
  if (budget == 0) return {};
  return {budget * topology.max_cp, fmt::format("{} {} x CP size {}", flag, budget, topology.max_cp)};
}

// Sums of bits would miss swapped weights; a hash of every byte does not, and is quick beside loading.
uint64_t weight_digest(const std::vector<at::Tensor>& weights) {
  Hash hash;
  for (const at::Tensor& weight : weights) {
    const at::Tensor value = weight.detach().cpu().contiguous();
    const auto* words = static_cast<const char*>(value.const_data_ptr());
    uint64_t folded = 0;  // four bytes at a time: the byte-wise hash of gigabytes would be felt at start
    for (size_t i = 0; i + 4 <= value.nbytes(); i += 4) {
      uint32_t word = 0;
      std::memcpy(&word, words + i, 4);
      folded = (folded ^ word) * 0x9e3779b97f4a7c15ULL;
    }
    hash.add(static_cast<uint64_t>(value.numel()));
    hash.add(folded);
  }
  return hash.value();
}

uint64_t cost_digest(const CostModel& cost) {
  Hash hash;
  hash.add(std::string_view(cost_model_to_toml(cost, "")));
  return hash.value();
}

std::string human_count(double value) {
  if (value >= 1e9) return fmt::format("{:.2f} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f} M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.1f} K", value / 1e3);
  return fmt::format("{:.0f}", value);
}

}  // namespace

std::string weights_fact(const std::vector<at::Tensor>& weights) {
  return fmt::format("digest {:016x}", weight_digest(weights));
}

std::vector<std::pair<std::string, std::string>> run_facts(const Session& session, const LoadedFiles& files) {
  const RunSettings& s = session.settings;
  const Topology& t = session.topology;
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  std::vector<std::pair<std::string, std::string>> facts = {
      {"data digest", fmt::format("{:016x} ({} samples, {} tokens)", files.data.digest(), files.data.samples.size(),
                                  files.data.total_tokens())},
      {"eval data digest", files.eval_data ? fmt::format("{:016x}", files.eval_data->digest()) : "none"},
      {"model config", files.config.json},
      {"--ref-load weights", files.reference ? weights_fact(files.reference->values()) : "none"},
      {"responses", s.num_rollout > 0 ? "sampled by the run" : "of the data"},
      {"--dtype", s.dtype},
      {"--recompute", s.recompute},
      {"--attention-kernel", s.attention_kernel},
      {"--device", s.device},
      {"--objective", text(static_cast<int>(s.objective))},
      {"--advantage-estimator", text(static_cast<int>(s.advantage_estimator))},
      {"--loss-aggregation", text(static_cast<int>(s.loss_aggregation))},
      {"--loss-scale-factor", text(s.loss_scale_factor)},
      {"--global-batch-size", text(s.global_batch_size)},
      {"--max-steps", text(s.max_steps)},
      {"--epochs", text(s.epochs)},
      {"--stop-after-steps", text(s.stop_after_steps)},
      {"--eval-interval", text(s.eval_interval)},
      {"--no-save", text(!s.save)},
      {"--save-interval", text(s.save_interval)},
      {"--async-save", text(s.async_save)},
      {"--lr", text(s.lr)},
      {"--min-lr", text(s.min_lr)},
      {"--lr-warmup-steps", text(s.lr_warmup_steps)},
      {"--lr-decay-style", text(static_cast<int>(s.lr_decay_style))},
      {"--weight-decay", text(s.weight_decay)},
      {"--clip-grad", text(s.clip_grad)},
      {"--adam-beta1", text(s.adam_beta1)},
      {"--adam-beta2", text(s.adam_beta2)},
      {"--adam-eps", text(s.adam_eps)},
      {"--log-prob-chunk-tokens", text(s.log_prob_chunk_tokens)},
      {"--eps-clip", text(s.eps_clip)},
      {"--eps-clip-high", text(s.eps_clip_high)},
      {"--eps-clip-c", text(s.eps_clip_c)},
      {"--entropy-coef", text(s.entropy_coef)},
      {"--use-kl-loss", text(s.use_kl_loss)},
      {"--kl-loss-coef", text(s.kl_loss_coef)},
      {"--kl-loss-type", text(static_cast<int>(s.kl_loss_type))},
      {"--kl-coef", text(s.kl_coef)},
      {"--normalize-advantages", text(s.normalize_advantages)},
      {"--gamma", text(s.gamma)},
      {"--use-tis", text(s.use_tis)},
      {"--tis-clip", text(s.tis_clip)},
      {"--tis-clip-low", text(s.tis_clip_low)},
      {"--num-rollout", text(s.num_rollout)},
      {"--rollout-batch-size", text(s.rollout_batch_size)},
      {"--n-samples-per-prompt", text(s.n_samples_per_prompt)},
      {"--rollout-max-response-len", text(s.rollout_max_response_len)},
      {"--rollout-top-k", text(s.rollout_top_k)},
      {"--rollout-top-p", text(s.rollout_top_p)},
      {"--rollout-stop-token-ids", fmt::format("{}", fmt::join(s.rollout_stop_token_ids, ","))},
      {"--rollout-lengths-file", text(!s.rollout_lengths_file.empty())},
      {"--rm-type", s.rm_type},
      {"--dynamic-sampling-filter", text(s.dynamic_sampling_filter)},
      {"--temperature", text(s.temperature)},
      {"--use-rollout-logprobs", text(s.use_rollout_logprobs)},
      {"--seed", text(s.seed)},
      {"--shuffle", text(s.shuffle)},
      {"--max-tokens-per-gpu", text(t.budget)},
      {"--log-probs-max-tokens-per-gpu", text(t.log_probs_budget)},
      {"--rollout-max-context-len", text(t.max_context)},
      {"maximum CP size", text(t.max_cp)},
      {"--cp-policy", std::string(to_string(t.policy))},
      {"--static-balance", text(static_cast<int>(t.static_balance))},
      {"--execution", std::string(to_string(t.execution))},
      {"--cp-comm-type", std::string(to_string(t.cp_comm_type))},
      {"--cost-model", fmt::format("digest {:016x}", cost_digest(session.cost))},
  };
  // One line a fact: a config.json has many.
  for (auto& [name, value] : facts) std::replace(value.begin(), value.end(), '\n', ' ');
  return facts;
}

namespace {

// The start-up table (rank 0).
void print_startup(const Session& session, const LoadedFiles& files) {
  if (!session.is_main() || !log::shows(log::Level::kWarning)) return;
  const Topology& t = session.topology;
  std::string sizes;
  for (int c = 1; c <= t.largest_cp(); c *= 2) sizes += (c > 1 ? ", " : "") + std::to_string(c);
  std::vector<std::pair<std::string, std::string>> rows = {
      {"world", fmt::format("{} ranks = tp {} x cp {} x dp {} x pp {}", t.world_size, t.tp, t.max_cp, t.dp, t.pp)},
      {"max CP size (S)", std::to_string(t.max_cp)},
      {"group sizes", t.dynamic && t.policy != CpPolicy::kStatic ? sizes : std::to_string(t.max_cp)},
      {"policy", fmt::format("{}, {}, {}", to_string(t.policy), to_string(t.execution), to_string(t.cp_comm_type))},
      {"budget per GPU", t.budget > 0 ? fmt::format("{} tokens (log-probs {})", t.budget, t.log_probs_budget)
                                      : "none: one sample a micro-batch"},
      {"model",
       fmt::format("{} parameters, {}, {} layers", human_count(static_cast<double>(files.config.parameter_count())),
                   session.settings.dtype, files.config.num_hidden_layers)},
      {"memory estimate", to_text(memory_of_run(session, files), t.lane_size())},
      {"data", fmt::format("{} samples, {} tokens, longest {}", files.data.samples.size(),
                           human_count(static_cast<double>(files.data.total_tokens())), files.data.longest())},
  };
  if (!files.data.skip_reasons.empty()) {
    rows.emplace_back("skipped", fmt::format("{} skipped, first: {}", files.data.skip_reasons.size(),
                                             files.data.skip_reasons.front()));
  }
  for (const std::string& note : t.notes) rows.emplace_back("note", note);
  print_table("ringfold", rows);
  for (const std::string& warning : t.warnings) log::warning(warning);
}

}  // namespace

MemoryEstimate memory_of_run(const Session& session, const LoadedFiles& files) {
  return estimate_memory(session.settings, session.topology, files.config, files.data.longest(),
                         files.data.total_tokens());
}

SampleLimit longest_accepted(const Topology& topology, bool scored) {
  // What --rollout-max-context-len allows fits both budgets (derive_topology).
  if (topology.max_context > 0) return {topology.max_context, "--rollout-max-context-len"};
  if (scored && topology.log_probs_budget < topology.budget) {
    return largest_pack(topology, "--log-probs-max-tokens-per-gpu", topology.log_probs_budget);
  }
  return largest_pack(topology, "--max-tokens-per-gpu", topology.budget);
}

void require_writable(const std::string& file, const std::string& flag) {
  const auto folder = std::filesystem::absolute(file).parent_path();
  if (std::filesystem::is_directory(folder) && access(folder.c_str(), W_OK) == 0) return;
  throw UsageError(
      fmt::format("[settings] {} {}: the folder {} does not exist or cannot be written to. Hint: make it first", flag,
                  file, folder.string()));
}

void make_output_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return;
  throw UsageError(
      fmt::format("[settings] --output-dir {}: {}. Hint: choose a folder you may write to", folder, error.message()));
}

ModelConfig config_of(const RunSettings& settings) {
  if (settings.model_dir.empty() == settings.model_config.empty()) {
    throw UsageError(fmt::format(
        "[settings] --model '{}' and --model-config '{}': exactly one is needed. Hint: --model DIR for a Hugging Face "
        "folder, or --model-config FILE --init-seed N for random weights",
        settings.model_dir, settings.model_config));
  }
  return load_model_config(settings.model_dir.empty() ? settings.model_config : settings.model_dir);
}

LoadedFiles load_files(const RunSettings& settings, const Topology& topology, bool scored) {
  LoadedFiles files;
  scored = scored || settings.objective != Objective::kSft || !settings.eval_data_file.empty();
  const SampleLimit limit = longest_accepted(topology, scored);
  files.config = config_of(settings);
  if (settings.data_file.empty()) throw UsageError("[settings] --data is missing. Hint: --data FILE.jsonl");
  check_objective(settings);
  for (const auto& [flag, beta] :
       {std::pair{"--adam-beta1", settings.adam_beta1}, {"--adam-beta2", settings.adam_beta2}}) {
    if (beta >= 0 && beta < 1) continue;
    throw UsageError(fmt::format("[settings] {}: got {}, expected at least 0 and below 1", flag, beta));
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!settings.tokenizer_dir.empty()) {
    tokenizer = std::make_shared<const Tokenizer>(Tokenizer::from_dir(settings.tokenizer_dir));
  }
  files.data = load_data(settings, limit, files.config, tokenizer, settings.data_file);
  if (!settings.eval_data_file.empty()) {
    files.eval_data = load_data(settings, limit, files.config, tokenizer, settings.eval_data_file);
  }
  if (!settings.ref_load.empty()) {
    files.reference = ReferenceWeights::load(files.config, dtype_of(settings), settings.ref_load);
  }
  return files;
}

std::unique_ptr<DenseModel> make_model(const RunSettings& settings, const ModelConfig& config, at::Device device) {
  const at::ScalarType dtype = dtype_of(settings);
  if (!settings.model_dir.empty()) return std::make_unique<DenseModel>(config, dtype, settings.model_dir, device);
  return std::make_unique<DenseModel>(config, dtype, settings.init_seed, device);
}

namespace {

// The digests read all data and weights: only where there is somebody to compare them with.
void compare_runs(const StartedRun& run) {
  if (run.session->env.world_size == 1) return;
  auto facts = run_facts(*run.session, run.files);
  std::vector<at::Tensor> weights;
  for (const Parameter& parameter : run.model->parameters()) weights.push_back(parameter.value);
  facts.emplace_back("weights", weights_fact(weights));
  require_same_run(*run.session, facts);
}

}  // namespace

StartedRun start_run(const RunSettings& settings, const std::function<LoadedFiles(const Topology&)>& load) {
  StartedRun run;
  CostModel cost;
  run.session = start_session(settings, [&](Session& session) {
    if (session.topology.cp_comm_type == CpCommType::kA2a) {
      // All-to-all splits the heads: refused before data and weights are read.
      const ModelConfig config = config_of(settings);
      session.settings.parallel.heads = {config.num_attention_heads, config.num_key_value_heads};
      session.topology = derive_topology(session.settings.parallel);
    }
    run.files = load(session.topology);
    cost = cost_model_of_run(settings, run.files.config, session.topology);
    run.model = make_model(settings, run.files.config, session.device);
  });
  run.session->cost = std::move(cost);
  try {
    compare_runs(run);
  } catch (const std::exception& failure) {
    end_on_gpus(*run.session, failure);
    throw;
  }
  print_startup(*run.session, run.files);
  return run;
}

}  // namespace ringfold
