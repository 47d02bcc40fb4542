// Forward-only pass: log-probs, entropies and greedy flags of response tokens, full length, in input order.
#pragma once

#include <vector>

#include "ringfold/models/qwen3/model.h"
#include "ringfold/train/batch.h"
#include "ringfold/train/session.h"

namespace ringfold {

struct SampleScores {
  std::vector<double> log_probs;  // one a response token
  std::vector<double> entropy;
  std::vector<uint8_t> greedy;  // the token is the model's first choice
};

// Plans the batch with the log-prob budget and runs it without gradients; every rank of the lane returns all samples,
// batch.samples[i] at [i]. The per-rank pieces are merged by one sum over the lane: each token is scored by exactly one
// rank, all others add zero, so the merge is exact.
std::vector<SampleScores> score_samples(Session& session, const DenseModel& model, const StepBatch& batch,
                                        int64_t step);

// Scores a whole data set in input order, in batches of the global batch size.
std::vector<SampleScores> score_dataset(Session& session, const DenseModel& model, const Dataset& data);

// Loss and accuracy on held-out samples: mean -log p over loss tokens; share of samples all of whose loss tokens are
// the model's first choice (teacher-forced exact match).
struct Evaluation {
  double loss = 0;
  double accuracy = 0;
};
Evaluation evaluate(const Dataset& data, const std::vector<SampleScores>& scores);

}  // namespace ringfold
