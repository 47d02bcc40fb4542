#include "ringfold/train/parity.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ringfold/data/order.h"
#include "ringfold/train/log_probs.h"
#include "ringfold/train/rl_fields.h"
#include "ringfold/train/runner.h"
#include "ringfold/train/sequence_ratio.h"
#include "ringfold/train/setup.h"
#include "ringfold/train/step.h"

namespace ringfold {
namespace {

// Everything the two sides are compared on.
struct Outcome {
  double loss = 0;
  std::vector<double> log_probs;  // of all response tokens, in input order
  at::Tensor gradients;
};

// A pack of one sample on one rank.
PlannedGroup lone_group(const Sample& sample) {
  PlannedGroup group;
  group.samples = {sample.id};
  group.lengths = {sample.length()};
  return group;
}

// The settings of a GPU run's reference.
RunSettings reference_settings(RunSettings settings) {
  settings.device = "cpu";
  settings.attention_kernel = "auto";
  if (settings.dtype == "bfloat16") settings.dtype = "float32";
  return settings;
}

Outcome reference_outcome(const RunSettings& settings, TrainState& state, const StepBatch& batch) {
  Outcome outcome;
  state.flat.zero_gradients();
  for (const Sample* sample : batch.samples) {
    const PlannedGroup group = lone_group(*sample);
    const CpContextPtr context = make_context(settings, group, {}, CpCommType::kP2p);
    {
      const c10::NoGradGuard no_grad;
      const PackInputs inputs = pack_inputs(batch, group, context->layout, ScoredRows::kResponseTokens, at::kCPU);
      const at::Tensor log_prob = score_pack(state.model, settings, inputs, context).log_prob_n.to(at::kDouble);
      const double* values = log_prob.contiguous().const_data_ptr<double>();
      outcome.log_probs.insert(outcome.log_probs.end(), values, values + log_prob.numel());
    }
    PackInputs inputs = pack_inputs(batch, group, context->layout, ScoredRows::kLossTokens, at::kCPU);
    const TokenScores scores = score_pack(state.model, settings, inputs, context);
    if (!is_token_local(settings.objective)) {
      inputs.terms.sequence_log_ratio_n = sequence_log_ratio(scores.log_prob_n, inputs.terms, *context);
    }
    ObjectiveResult result = token_loss(settings, scores, inputs.terms);
    result.loss.backward();
    outcome.loss += read_sums({result.sums_n}).loss;
  }
  outcome.gradients = state.flat.gradients().clone();
  return outcome;
}

// The reference of a GPU run: the very weights, computed on the CPU.
Outcome reference_on_cpu(const RunSettings& settings, const DenseModel& model, const StepBatch& batch) {
  const RunSettings on_cpu = reference_settings(settings);
  const auto twin = make_model(on_cpu, model.config(), at::kCPU);
  {
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < model.parameters().size(); ++i) {
      twin->parameters()[i].value.copy_(model.parameters()[i].value);
    }
  }
  FlatParameters flat(twin->parameters());
  TrainState state{*twin, flat, nullptr};
  return reference_outcome(on_cpu, state, batch);
}

Outcome layout_outcome(Session& session, TrainState& state, const StepBatch& batch, std::string* layout) {
  Outcome outcome;
  for (const SampleScores& scores : score_samples(session, state.model, batch, 0)) {
    outcome.log_probs.insert(outcome.log_probs.end(), scores.log_probs.begin(), scores.log_probs.end());
  }
  const StepReport report = train_step(session, state, batch, 1, 0);
  state.flat.gather_gradients(session.collectives());
  outcome.loss = report.sums.loss;
  outcome.gradients = state.flat.gradients().cpu().clone();
  std::map<int, int> packs;
  for (const MicroStep& micro_step : report.plan.micro_steps) {
    for (const PlannedGroup& group : micro_step.groups) ++packs[group.cp_size.value()];
  }
  *layout = fmt::format("{} ranks, {} micro-steps", session.env.world_size, report.plan.micro_steps.size());
  for (const auto& [size, count] : packs) *layout += fmt::format(", {} packs at CP {}", count, size);
  return outcome;
}

// 1 - cosine; two zeros agree, and NaN never does.
double angle(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const double norms = x.norm().item<double>() * y.norm().item<double>();
  const double product = x.dot(y).item<double>();
  if (std::isnan(norms) || std::isnan(product)) return INFINITY;
  if (norms == 0) return x.equal(y) ? 0 : 1;
  return 1 - product / norms;
}

ParityReport compare(const FlatParameters& flat, const Outcome& reference, const Outcome& layout,
                     const ParityTolerance& tolerance) {
  ParityReport report;
  report.reference_loss = reference.loss;
  report.loss = layout.loss;
  report.differences.push_back(
      {"loss", std::abs(layout.loss - reference.loss) / std::max(1e-30, std::abs(reference.loss)), tolerance.loss});
  if (reference.loss == 0) report.differences.back().difference = std::abs(layout.loss);
  double largest = reference.log_probs.size() == layout.log_probs.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(reference.log_probs.size(), layout.log_probs.size()); ++i) {
    const double difference = std::abs(reference.log_probs[i] - layout.log_probs[i]);
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  report.differences.push_back({"log_probs", largest, tolerance.log_probs});
  const double global = reference.gradients.to(at::kDouble).norm().item<double>();
  if (tolerance.by_angle) {
    report.differences.push_back(
        {"all gradients", angle(reference.gradients, layout.gradients), tolerance.gradient_global});
  }
  for (const auto& segment : flat.segments()) {
    const at::Tensor a = reference.gradients.narrow(0, segment.begin, segment.size).to(at::kDouble);
    const at::Tensor b = layout.gradients.narrow(0, segment.begin, segment.size).to(at::kDouble);
    if (tolerance.by_angle) {
      report.differences.push_back({segment.name, angle(a, b), tolerance.gradient});
      continue;
    }
    const double difference = (a - b).norm().item<double>();
    report.differences.push_back({segment.name, std::isnan(difference) ? INFINITY : difference,
                                  tolerance.gradient * a.norm().item<double>() + tolerance.gradient_global * global});
  }
  return report;
}

void print_report(const ParityReport& report, const std::string& dtype, bool json) {
  if (json) {
    nlohmann::ordered_json out = {{"schema", 1},
                                  {"ok", report.ok()},
                                  {"dtype", dtype},
                                  {"layout", report.layout},
                                  {"reference_loss", report.reference_loss},
                                  {"loss", report.loss}};
    for (const auto& d : report.differences) {
      out["differences"].push_back(
          {{"name", d.name}, {"difference", d.difference}, {"allowed", d.allowed}, {"ok", d.ok()}});
    }
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("parity: one rank, one sample at a time   against   {} ({})\n", report.layout, dtype);
  fmt::print("  loss {:.12g} against {:.12g}\n", report.reference_loss, report.loss);
  fmt::print("  {:<48} {:>12} {:>12}\n", "", "difference", "allowed");
  // Loss and log-probs always; of the gradients the five closest to their limit, and every one beyond it.
  std::vector<ParityDifference> rows = report.differences;
  std::stable_sort(rows.begin() + 2, rows.end(),
                   [](const auto& a, const auto& b) { return a.difference * b.allowed > b.difference * a.allowed; });
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i >= 7 && rows[i].ok()) break;
    fmt::print("  {:<48} {:>12.3g} {:>12.3g}{}\n", rows[i].name, rows[i].difference, rows[i].allowed,
               rows[i].ok() ? "" : "  DIFFERS");
  }
  fmt::print("parity: {} ({} gradients compared)\n", report.ok() ? "equal within tolerance" : "DIFFERENT",
             report.differences.size() - 2);
}

// All ranks; returns the exit code.
int check_layout(Session& session, const RunSettings& settings, const LoadedFiles& files, DenseModel* model,
                 bool json) {
  FlatParameters flat(model->parameters(), shard_of(session.collectives()));
  TrainState state{*model, flat};

  const auto count = static_cast<int64_t>(files.data.samples.size());
  StepBatch batch(files.data,
                  global_batch(count, settings.global_batch_size, 1, settings.seed, settings.shuffle).indices,
                  settings.loss_aggregation, settings.loss_scale_factor);
  RlFields rl;
  if (settings.objective != Objective::kSft) {
    rl = rl_fields(session, *model, files.data, files.reference ? &*files.reference : nullptr);
    batch.rl = &rl;
  }
  std::string layout_text;
  const Outcome layout = layout_outcome(session, state, batch, &layout_text);
  // The reference is rank 0's work alone. The others wait for its verdict at the store, where no communication timeout
  // takes a long reference for a stuck peer.
  std::string verdict;
  if (session.is_main()) {
    const Outcome reference =
        session.device.is_cpu() ? reference_outcome(settings, state, batch) : reference_on_cpu(settings, *model, batch);
    ParityReport report = compare(flat, reference, layout, ParityTolerance::of(settings.dtype, settings.device));
    report.layout = layout_text;
    print_report(report, settings.dtype, json);
    verdict = report.ok() ? "equal" : "different";
  }
  const auto verdicts = session.rendezvous->all_gather("parity verdict", verdict, std::chrono::hours(24));
  return verdicts.front() == "equal" ? 0 : 1;
}

}  // namespace

bool ParityReport::ok() const {
  return std::all_of(differences.begin(), differences.end(), [](const auto& d) { return d.ok(); });
}

ParityTolerance ParityTolerance::of(const std::string& dtype, const std::string& device) {
  if (dtype == "bfloat16") return {1e-3, 0.1, 1e-3, 1e-4, /*by_angle=*/true};
  if (dtype == "float64") return {1e-10, 1e-10, 1e-10, 1e-12};
  if (device == "cuda") return {1e-5, 1e-4, 1e-4, 1e-6};
  return {1e-6, 1e-5, 1e-5, 1e-7};
}

int run_parity_check(const RunSettings& settings, bool json) {
  const StartedRun started =
      start_run(settings, [&](const Topology& topology) { return load_files(settings, topology, /*scored=*/true); });
  return run_with_others(*started.session, [&](Session& session) {
    return check_layout(session, settings, started.files, started.model.get(), json);
  });
}

}  // namespace ringfold
