#include "ringfold/train/log_probs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>

#include "ringfold/device/device.h"
#include "ringfold/train/planning.h"
#include "ringfold/train/runner.h"

namespace ringfold {
namespace {

// One row a field over all response tokens of the batch; this rank fills only what it scored.
struct MergeBuffer {
  explicit MergeBuffer(const StepBatch& batch) {
    int64_t total = 0;
    for (const Sample* sample : batch.samples) {
      begin.push_back(total);
      total += sample->response_length;
    }
    values = at::zeros({4, total}, at::kDouble);
  }
  std::vector<int64_t> begin;  // first column of each sample
  at::Tensor values;           // log-prob, entropy, greedy, times scored
};

void put_scores(MergeBuffer& buffer, const PackInputs& inputs, const TokenScores& scores) {
  wait_for_stream(scores.log_prob_n.device());
  const at::Tensor log_prob = scores.log_prob_n.to(at::kDouble).cpu().contiguous();
  const at::Tensor entropy = scores.entropy_n.to(at::kDouble).cpu().contiguous();
  const at::Tensor greedy = scores.greedy_n.to(at::kDouble).cpu().contiguous();
  auto out = buffer.values.accessor<double, 2>();
  for (size_t n = 0; n < inputs.origins.size(); ++n) {
    const int64_t column = buffer.begin[inputs.origins[n].sample] + inputs.origins[n].response_token;
    out[0][column] = log_prob.const_data_ptr<double>()[n];
    out[1][column] = entropy.const_data_ptr<double>()[n];
    out[2][column] = greedy.const_data_ptr<double>()[n];
    out[3][column] = 1;
  }
}

std::vector<SampleScores> take_samples(const StepBatch& batch, const MergeBuffer& buffer) {
  RINGFOLD_ASSERT(buffer.values.numel() == 0 || buffer.values.select(0, 3).eq(1).all().item<bool>(),
                  "a response token was not scored exactly once");
  const auto values = buffer.values.accessor<double, 2>();
  std::vector<SampleScores> result(batch.samples.size());
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    for (int64_t t = 0; t < batch.samples[i]->response_length; ++t) {
      const int64_t column = buffer.begin[i] + t;
      result[i].log_probs.push_back(values[0][column]);
      result[i].entropy.push_back(values[1][column]);
      result[i].greedy.push_back(values[2][column] > 0);
    }
  }
  return result;
}

}  // namespace

std::vector<SampleScores> score_samples(Session& session, const DenseModel& model, const StepBatch& batch,
                                        int64_t step) {
  const c10::NoGradGuard no_grad;
  const Plan plan = agree_on_plan(session, batch, session.topology.log_probs_budget, step);
  MergeBuffer buffer(batch);
  for (size_t m = 0; m < plan.micro_steps.size(); ++m) {
    const PlannedGroup* group = plan.micro_steps[m].group_of(session.lane_rank);
    if (group == nullptr) continue;  // filler: a dense forward has no collective outside its group
    const PackPlace place{session.exchange, session.lane_rank, step, static_cast<int>(m)};
    session.enter("scoring", step, place.micro_step);
    with_memory_check(*group, place, [&] {
      const CpContextPtr context = make_context(session.settings, *group, place, session.topology.cp_comm_type);
      const PackInputs inputs =
          pack_inputs(batch, *group, context->layout, ScoredRows::kResponseTokens, session.device);
      put_scores(buffer, inputs, score_pack(model, session.settings, inputs, context));
    });
  }
  session.collectives().all_reduce_sum(buffer.values, "merge of log-probs");
  session.exchange->take_usage();  // NCCL keeps two events a wait until its times are taken
  return take_samples(batch, buffer);
}

std::vector<SampleScores> score_dataset(Session& session, const DenseModel& model, const Dataset& data) {
  const auto count = static_cast<int64_t>(data.samples.size());
  const int64_t batch_size = session.settings.global_batch_size > 0 ? session.settings.global_batch_size : count;
  std::vector<SampleScores> all;
  for (int64_t begin = 0; begin < count; begin += batch_size) {
    std::vector<int64_t> indices(static_cast<size_t>(std::min(batch_size, count - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    const StepBatch batch(data, indices, session.settings.loss_aggregation);
    for (SampleScores& scores : score_samples(session, model, batch, 0)) all.push_back(std::move(scores));
  }
  return all;
}

Evaluation evaluate(const Dataset& data, const std::vector<SampleScores>& scores) {
  double loss = 0, tokens = 0, right_samples = 0, samples = 0;
  for (size_t i = 0; i < data.samples.size(); ++i) {
    const Sample& sample = data.samples[i];
    bool all_right = true;
    int64_t counted = 0;
    for (int64_t t = 0; t < sample.response_length; ++t) {
      if (sample.loss_mask[static_cast<size_t>(sample.response_begin() + t)] == 0) continue;
      loss -= scores[i].log_probs[static_cast<size_t>(t)];
      all_right = all_right && scores[i].greedy[static_cast<size_t>(t)] != 0;
      ++counted;
    }
    if (counted == 0) continue;
    tokens += static_cast<double>(counted);
    samples += 1;
    right_samples += all_right ? 1 : 0;
  }
  if (samples == 0) return {};
  return {loss / tokens, right_samples / samples};
}

}  // namespace ringfold
