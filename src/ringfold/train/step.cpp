#include "ringfold/train/step.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ringfold/base/log.h"
#include "ringfold/mesh/failure.h"
#include "ringfold/train/planning.h"
#include "ringfold/train/runner.h"

namespace ringfold {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double max_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

void log_micro_step(const Session& session, const MicroStep& micro_step) {
  if (!session.is_main() || !session.topology.dynamic) return;
  const PlannedGroup* own = micro_step.group_of(session.lane_rank);
  const PlannedGroup& group = own != nullptr ? *own : micro_step.groups.front();
  log::info(fmt::format("[dynamic_cp] micro-step dynamic_cp_size={} (num_samples={}, max_token_per_gpu={})",
                        group.cp_size.value(), group.samples.size(), session.topology.budget));
}

// Sums over the lane what every rank knows only of its own tokens.
LossSums reduce_sums(Collectives& collectives, const LossSums& local) {
  at::Tensor sums =
      at::tensor({local.loss, local.tokens, local.entropy, local.clipped, local.old_minus_new}, at::kDouble);
  at::Tensor largest = at::tensor({local.ratio_deviation}, at::kDouble);
  collectives.all_reduce_sum(sums, "loss sums");
  collectives.all_reduce_max(largest, "largest ratio");
  const double* values = sums.const_data_ptr<double>();
  return {values[0], values[1], values[2], values[3], values[4], largest.item<double>()};
}

}  // namespace

LossSums run_packs(Session& session, TrainState& state, const StepBatch& batch, const Plan& plan, int64_t step,
                   double* busy_ms) {
  LossSums sums;
  for (size_t m = 0; m < plan.micro_steps.size(); ++m) {
    log_micro_step(session, plan.micro_steps[m]);
    const PlannedGroup* group = plan.micro_steps[m].group_of(session.lane_rank);
    if (group == nullptr) continue;  // filler: weight 0, and a dense model has no collective outside its group
    const auto begin = Clock::now();
    const PackPlace place{session.exchange, session.lane_rank, step, static_cast<int>(m)};
    with_memory_check(*group, place, [&] {
      const CpContextPtr context = make_context(session.settings, *group, place, session.topology.cp_comm_type);
      const PackInputs inputs = pack_inputs(batch, *group, context->layout, ScoredRows::kLossTokens);
      const TokenScores scores = score_pack(state.model, session.settings, inputs, context);
      ObjectiveResult result = token_loss(session.settings, scores, inputs.terms);
      // Also without loss tokens on this rank: the other members wait for its exchanges in the backward.
      result.loss.backward();
      sums.add(result.sums);
    });
    *busy_ms += ms_since(begin);
  }
  return sums;
}

StepReport train_step(Session& session, TrainState& state, const StepBatch& batch, int64_t step, double lr) {
  const auto begin = Clock::now();
  AgreedPlan agreed = agree_on_plan(session, batch, session.topology.budget, step);
  StepReport report;
  report.plan = std::move(agreed.plan);
  report.plan_ms = agreed.plan_ms;

  state.flat.zero_gradients();
  session.exchange->take_usage();  // what forward-only passes used is not this step's
  double busy_ms = 0;
  const LossSums local = run_packs(session, state, batch, report.plan, step, &busy_ms);
  const double exposed_ms = session.exchange->take_usage().exposed_seconds * 1e3;

  // The reduction starts after this rank's last CP exchange of the step (spec 4). One sum over the lane, no factor.
  session.collectives().all_reduce_sum(state.flat.gradients(), "gradients");
  report.sums = reduce_sums(session.collectives(), local);
  RINGFOLD_ASSERT(static_cast<int64_t>(report.sums.tokens) == batch.weights.loss_tokens,
                  "the ranks together counted another number of loss tokens than the batch has");

  report.grad_norm = state.flat.gradient_norm();
  if (!std::isfinite(report.grad_norm) || !std::isfinite(report.sums.loss)) {
    // Every rank has the same sums; rank 0 tells.
    if (session.lane_rank != LaneRank(0)) throw ReportedElsewhere(ExitCode::kFailure);
    throw RunError(fmt::format(
        "[train] step {}: loss {} and gradient norm {} are not finite; no update was made. Hint: a smaller --lr, a "
        "--clip-grad, or look for broken weights and log-probs in the input",
        step, report.sums.loss, report.grad_norm));
  }
  if (state.on_gradients) state.on_gradients(step);
  if (batch.weights.loss_tokens > 0 && state.optimizer != nullptr) {
    state.optimizer->step(lr, clip_factor(report.grad_norm, session.settings.clip_grad));
    report.updated = true;
  }
  report.busy_ms = session.collectives().all_gather_double(busy_ms - exposed_ms, "busy time");
  const auto exposed = session.collectives().all_gather_double(exposed_ms, "exposed communication");
  report.exposed_ms = *std::max_element(exposed.begin(), exposed.end());
  const auto memory = session.collectives().all_gather_double(max_rss_bytes(), "peak memory");
  report.peak_memory_bytes = static_cast<int64_t>(*std::max_element(memory.begin(), memory.end()));
  report.step_ms = ms_since(begin);
  return report;
}

}  // namespace ringfold
