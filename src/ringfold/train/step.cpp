#include "ringfold/train/step.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ringfold/base/log.h"
#include "ringfold/device/device.h"
#include "ringfold/mesh/failure.h"
#include "ringfold/report/timeline.h"
#include "ringfold/train/planning.h"
#include "ringfold/train/runner.h"
#include "ringfold/train/sequence_ratio.h"

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
  const auto values = local.values();
  at::Tensor sums = at::empty({LossSums::kMaxima}, at::kDouble);
  at::Tensor largest = at::empty({LossSums::kCount - LossSums::kMaxima}, at::kDouble);
  std::copy_n(values.begin(), LossSums::kMaxima, sums.mutable_data_ptr<double>());
  std::copy(values.begin() + LossSums::kMaxima, values.end(), largest.mutable_data_ptr<double>());
  collectives.all_reduce_sum(sums, "loss sums");
  collectives.all_reduce_max(largest, "largest ratio");
  const at::Tensor all = at::cat({sums, largest});
  return LossSums::from(all.const_data_ptr<double>());
}

// What each rank knows of its own time and memory, put together by one sum: every rank fills its row.
void gather_usage(Session& session, const std::vector<StreamTimer::Span>& spans, double exposed_ms,
                  StepReport& report) {
  constexpr int kTimes = 3;  // first column of the packs' times
  const int64_t lane = session.topology.lane_size();
  const int64_t times = 2 * most_packs_of_a_rank(report.plan);
  at::Tensor rows = at::zeros({lane, kTimes + times}, at::kDouble);
  double* own = rows.mutable_data_ptr<double>() + session.lane_rank.value() * (kTimes + times);
  own[1] = exposed_ms;
  own[2] = session.device.is_cpu() ? max_rss_bytes()
                                   : static_cast<double>(device_memory(session.device).peak_allocated_bytes);
  for (size_t p = 0; p < spans.size(); ++p) {
    own[0] += (spans[p].end_us - spans[p].begin_us) / 1e3;
    own[kTimes + 2 * p] = spans[p].begin_us;
    own[kTimes + 2 * p + 1] = spans[p].end_us;
  }
  session.collectives().all_reduce_sum(rows, "times and memory");
  for (int64_t rank = 0; rank < lane; ++rank) {
    const double* row = rows.const_data_ptr<double>() + rank * (kTimes + times);
    report.busy_ms.push_back(row[0] - row[1]);
    report.exposed_ms = std::max(report.exposed_ms, row[1]);
    report.peak_memory_bytes = std::max(report.peak_memory_bytes, static_cast<int64_t>(row[2]));
    report.pack_us.insert(report.pack_us.end(), row + kTimes, row + kTimes + times);
  }
}

// Starts the reduction layer by layer in the backward of the rank's last pack, if that pack has no exchange: a rank
// reduces only after its last CP exchange of the step (spec 4), and what it then waits for are ranks that get on
// without it.
DenseModel::GradientsDone early_reduction(Session& session, TrainState& state, const PlannedGroup& group) {
  if (group.cp_size != CpSize(1)) return nullptr;
  return [&session, &state](int layer) {
    state.flat.start_reduction(session.collectives(), state.flat.begin_of(state.model.layer_parameters(layer)));
  };
}

}  // namespace

LossSums run_packs(Session& session, TrainState& state, const PreparedStep& prepared, int64_t step, StreamTimer& packs,
                   bool reduce_early) {
  const Plan& plan = prepared.planned.plan;
  std::vector<at::Tensor> sums;
  size_t pack = 0;
  for (size_t m = 0; m < plan.micro_steps.size(); ++m) {
    log_micro_step(session, plan.micro_steps[m]);
    const PlannedGroup* group = plan.micro_steps[m].group_of(session.lane_rank);
    if (group == nullptr) continue;  // filler: weight 0, and a dense model has no collective outside its group
    packs.begin();
    const PackPlace place{session.exchange, session.lane_rank, step, static_cast<int>(m)};
    session.enter("forward", step, place.micro_step);
    with_memory_check(*group, place, [&] {
      const CpContextPtr context = make_context(session.settings, *group, place, session.topology.cp_comm_type);
      const bool last = pack + 1 == prepared.inputs.size();
      PackInputs inputs = on_device(prepared.inputs[pack++], session.device);
      const at::Tensor hidden_nh =
          hidden_of_pack(state.model, session.settings, inputs, context,
                         last && reduce_early ? early_reduction(session, state, *group) : nullptr);
      session.enter("backward", step, place.micro_step);  // of the head, whose gradients come with its scores
      const at::Tensor& head = state.model.head_weight();
      if (!is_token_local(session.settings.objective)) {
        // First phase: the log-probs of the whole pack, without gradient.
        const TokenScores scores =
            linear_log_prob(hidden_nh.detach(), head.detach(), inputs.target_n, head_options(session.settings));
        inputs.terms.sequence_log_ratio_n = sequence_log_ratio(scores.log_prob_n, inputs.terms, *context);
      }
      const at::Tensor dhidden_nh = linear_loss_gradients(
          hidden_nh.detach(), head.detach(), inputs.target_n, head_options(session.settings),
          [&](const TokenScores& scores, int64_t begin) {
            ObjectiveResult result =
                token_loss(session.settings, scores, inputs.terms.rows(begin, scores.log_prob_n.size(0)));
            sums.push_back(result.sums_n);
            return result.loss;
          },
          head.grad());
      // Also without loss tokens on this rank: the other members wait for its exchanges in the backward.
      hidden_nh.backward(dhidden_nh);
    });
    packs.end();
  }
  wait_for_stream(session.device);
  return read_sums(sums);
}

StepReport train_step(Session& session, TrainState& state, const StepBatch& batch, int64_t step, double lr) {
  const auto begin = Clock::now();
  session.enter("planning", step);
  PreparedStep prepared = prepare_step(session, batch, step);
  prepared.waited_ms = ms_since(begin);
  return train_step(session, state, prepared, step, lr);
}

StepReport train_step(Session& session, TrainState& state, PreparedStep& prepared, int64_t step, double lr) {
  const auto begin = Clock::now();
  const StepBatch& batch = prepared.batch;
  require_same_plan(session, prepared.planned.plan, step);
  StreamTimer packs(session.device);
  packs.start();

  state.flat.zero_gradients();
  session.exchange->take_usage();  // what forward-only passes used is not this step's
  const bool reduce_early = state.reduce_early.value_or(!session.device.is_cpu());
  const LossSums local = run_packs(session, state, prepared, step, packs, reduce_early);
  const std::vector<StreamTimer::Span> spans = packs.take_spans();
  const double exposed_ms = session.exchange->take_usage().exposed_seconds * 1e3;

  session.enter("reduction", step);
  // The reduction starts after this rank's last CP exchange of the step (spec 4). One sum over the lane, no factor.
  state.flat.reduce_gradients(session.collectives());
  StepReport report;
  report.plan = std::move(prepared.planned.plan);
  report.plan_ms = prepared.planned.plan_ms;
  report.sums = reduce_sums(session.collectives(), local);
  RINGFOLD_ASSERT(static_cast<int64_t>(report.sums.tokens) == batch.weights.loss_tokens,
                  "the ranks together counted another number of loss tokens than the batch has");

  session.enter("update", step);
  report.grad_norm = state.flat.gradient_norm(session.collectives());
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
    state.flat.gather_values(session.collectives());
    report.updated = true;
  }
  wait_for_stream(session.device);
  gather_usage(session, spans, exposed_ms, report);
  report.step_ms = ms_since(begin) + prepared.waited_ms;
  return report;
}

}  // namespace ringfold
