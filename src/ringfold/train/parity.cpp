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

Outcome reference_outcome(const RunSettings& settings, TrainState& state, const StepBatch& batch) {
  Outcome outcome;
  state.flat.zero_gradients();
  for (const Sample* sample : batch.samples) {
    const PlannedGroup group = lone_group(*sample);
    const CpContextPtr context = make_context(settings, group, {}, CpCommType::kP2p);
    {
      const c10::NoGradGuard no_grad;
      const PackInputs inputs = pack_inputs(batch, group, context->layout, ScoredRows::kResponseTokens);
      const at::Tensor log_prob = score_pack(state.model, settings, inputs, context).log_prob_n.to(at::kDouble);
      const double* values = log_prob.contiguous().const_data_ptr<double>();
      outcome.log_probs.insert(outcome.log_probs.end(), values, values + log_prob.numel());
    }
    const PackInputs inputs = pack_inputs(batch, group, context->layout, ScoredRows::kLossTokens);
    ObjectiveResult result = token_loss(settings, score_pack(state.model, settings, inputs, context), inputs.terms);
    result.loss.backward();
    outcome.loss += result.sums.loss;
  }
  outcome.gradients = state.flat.gradients().clone();
  return outcome;
}

Outcome layout_outcome(Session& session, TrainState& state, const StepBatch& batch, std::string* layout) {
  Outcome outcome;
  for (const SampleScores& scores : score_samples(session, state.model, batch, 0)) {
    outcome.log_probs.insert(outcome.log_probs.end(), scores.log_probs.begin(), scores.log_probs.end());
  }
  const StepReport report = train_step(session, state, batch, 1, 0);
  outcome.loss = report.sums.loss;
  outcome.gradients = state.flat.gradients().clone();
  std::map<int, int> packs;
  for (const MicroStep& micro_step : report.plan.micro_steps) {
    for (const PlannedGroup& group : micro_step.groups) ++packs[group.cp_size.value()];
  }
  *layout = fmt::format("{} ranks, {} micro-steps", session.env.world_size, report.plan.micro_steps.size());
  for (const auto& [size, count] : packs) *layout += fmt::format(", {} packs at CP {}", count, size);
  return outcome;
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
  for (const auto& segment : flat.segments()) {
    const at::Tensor a = reference.gradients.narrow(0, segment.begin, segment.size).to(at::kDouble);
    const at::Tensor b = layout.gradients.narrow(0, segment.begin, segment.size).to(at::kDouble);
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

}  // namespace

bool ParityReport::ok() const {
  return std::all_of(differences.begin(), differences.end(), [](const auto& d) { return d.ok(); });
}

ParityTolerance ParityTolerance::of(const std::string& dtype) {
  return dtype == "float64" ? ParityTolerance{1e-10, 1e-10, 1e-10, 1e-12} : ParityTolerance{1e-6, 1e-5, 1e-5, 1e-7};
}

int run_parity_check(const RunSettings& settings, bool json) {
  LoadedFiles files;
  std::unique_ptr<DenseModel> model;
  const std::unique_ptr<Session> started = start_session(settings, [&](const Topology& topology) {
    files = load_files(settings, topology);
    model = make_model(settings, files.config);
  });
  Session& session = *started;
  require_same_run(session, run_facts(session, files, *model));
  print_startup(session, files);
  FlatParameters flat(model->parameters());
  TrainState state{*model, flat};

  const auto count = static_cast<int64_t>(files.data.samples.size());
  StepBatch batch(files.data,
                  global_batch(count, settings.global_batch_size, 1, settings.seed, settings.shuffle).indices,
                  settings.loss_aggregation);
  RlFields rl;
  if (settings.objective == Objective::kGrpo) {
    rl = rl_fields(session, *model, files.data);
    batch.rl = &rl;
  }
  std::string layout_text;
  const Outcome layout = layout_outcome(session, state, batch, &layout_text);
  // The reference is rank 0's work alone. The others wait for its verdict at the store, where no communication timeout
  // takes a long reference for a stuck peer.
  std::string verdict;
  if (session.is_main()) {
    ParityReport report =
        compare(flat, reference_outcome(settings, state, batch), layout, ParityTolerance::of(settings.dtype));
    report.layout = layout_text;
    print_report(report, settings.dtype, json);
    verdict = report.ok() ? "equal" : "different";
  }
  const auto verdicts = session.rendezvous->all_gather("parity verdict", verdict, std::chrono::hours(24));
  return verdicts.front() == "equal" ? 0 : 1;
}

}  // namespace ringfold
