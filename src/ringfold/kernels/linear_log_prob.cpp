#include "ringfold/kernels/linear_log_prob.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "ringfold/base/error.h"
#include "ringfold/kernels/fused.h"
#include "ringfold/kernels/product.h"

namespace ringfold {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The GPU's kernels do in one pass over the logits what the plain operations below do in many.
bool has_fused_scores(const at::Tensor& logits_nv) {
  return logits_nv.is_cuda() && logits_nv.scalar_type() == at::kFloat;
}

// Logits still undivided by the temperature.
at::Tensor raw_logits(const at::Tensor& hidden_nh, const at::Tensor& weight_vh) {
  return hidden_nh.scalar_type() == at::kDouble ? product(hidden_nh, weight_vh.t())
                                                : wide_product(hidden_nh, weight_vh.t());
}

// One chunk. With raw logits, as the GPU's kernels want them, or those divided by the temperature.
struct Chunk {
  at::Tensor logits_nv, target_n, lse_n, entropy_n;
  double temperature;
  at::ScalarType type;  // of hidden states and weights
};

Chunk make_chunk(const at::Tensor& hidden_nh, const at::Tensor& weight_vh, const at::Tensor& target_n,
                 double temperature) {
  at::Tensor logits_nv = raw_logits(hidden_nh, weight_vh);
  if (!has_fused_scores(logits_nv) && temperature != 1.0) logits_nv.div_(temperature);
  return {logits_nv, target_n, {}, {}, temperature, hidden_nh.scalar_type()};
}

// Fills in what the gradients need: log-sum-exp and entropy. Without `keep_logits` it may use them up.
TokenScores score_chunk(Chunk& chunk, bool keep_logits) {
  if (has_fused_scores(chunk.logits_nv)) {
    const fused::RowScores scores = fused::log_prob(chunk.logits_nv, chunk.target_n, chunk.temperature);
    chunk.lse_n = scores.lse_n;
    chunk.entropy_n = scores.entropy_n;
    return {scores.log_prob_n, scores.entropy_n, scores.greedy_n};
  }
  // With x = logits - max and s = sum exp(x): log p = x - log s, entropy = log s - sum exp(x) x / s. One exponential
  // and two buffers of a chunk.
  const at::Tensor max_n = chunk.logits_nv.amax(1);
  const at::Tensor x_nv = keep_logits ? chunk.logits_nv - max_n.unsqueeze(1) : chunk.logits_nv.sub_(max_n.unsqueeze(1));
  at::Tensor exp_nv = x_nv.exp();
  const at::Tensor sum_n = exp_nv.sum(1), log_sum_n = sum_n.log();
  const at::Tensor target_x_n = x_nv.gather(1, chunk.target_n.unsqueeze(1)).squeeze(1);
  chunk.lse_n = max_n + log_sum_n;
  chunk.entropy_n = log_sum_n - exp_nv.mul_(x_nv).sum(1) / sum_n;
  return {target_x_n - log_sum_n, chunk.entropy_n, target_x_n == 0};
}

// d logits from the gradients of log-prob and entropy, of which at least one is defined. Uses the logits up.
at::Tensor logits_gradient(const Chunk& chunk, const at::Tensor& dlog_prob_n, const at::Tensor& dentropy_n) {
  if (has_fused_scores(chunk.logits_nv)) {
    const auto contiguous = [](const at::Tensor& x) { return x.defined() ? x.contiguous() : x; };
    return fused::log_prob_backward(chunk.logits_nv, chunk.target_n, chunk.lse_n, chunk.entropy_n,
                                    contiguous(dlog_prob_n), contiguous(dentropy_n), chunk.temperature, chunk.type);
  }
  at::Tensor log_p_nv = chunk.logits_nv;
  log_p_nv.sub_(chunk.lse_n.unsqueeze(1));
  const at::Tensor p_nv = log_p_nv.exp();
  at::Tensor dlogits_nv;
  if (dentropy_n.defined()) {
    // -p (log p + entropy) * dentropy
    dlogits_nv = log_p_nv.add_(chunk.entropy_n.unsqueeze(1));
    dlogits_nv.mul_(p_nv).mul_(dentropy_n.unsqueeze(1)).neg_();
  }
  if (dlog_prob_n.defined()) {
    // (onehot - p) * dlog_prob
    const at::Tensor dlog_prob_1 = dlog_prob_n.unsqueeze(1);
    if (dlogits_nv.defined()) {
      dlogits_nv.addcmul_(p_nv, dlog_prob_1, -1);
    } else {
      dlogits_nv = p_nv.mul_(dlog_prob_1).neg_();
    }
    dlogits_nv.scatter_add_(1, chunk.target_n.unsqueeze(1), dlog_prob_1.contiguous());
  }
  if (chunk.temperature != 1.0) dlogits_nv.div_(chunk.temperature);
  return dlogits_nv.to(chunk.type);
}

struct LinearLogProb : torch::autograd::Function<LinearLogProb> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden_nh, const at::Tensor& weight_vh,
                               const at::Tensor& target_n, int64_t chunk_rows, double temperature) {
    const int64_t rows = hidden_nh.size(0);
    const auto options = hidden_nh.options().dtype(at::toOpMathType(hidden_nh.scalar_type()));
    const at::Tensor log_prob_n = at::empty({rows}, options);
    const at::Tensor entropy_n = at::empty({rows}, options);
    const at::Tensor lse_n = at::empty({rows}, options);
    const at::Tensor greedy_n = at::empty({rows}, hidden_nh.options().dtype(at::kBool));
    for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
      const int64_t end = std::min(rows, begin + chunk_rows);
      Chunk chunk = make_chunk(hidden_nh.slice(0, begin, end), weight_vh, target_n.slice(0, begin, end), temperature);
      const TokenScores scores = score_chunk(chunk, /*keep_logits=*/false);
      log_prob_n.slice(0, begin, end).copy_(scores.log_prob_n);
      entropy_n.slice(0, begin, end).copy_(scores.entropy_n);
      lse_n.slice(0, begin, end).copy_(chunk.lse_n);
      greedy_n.slice(0, begin, end).copy_(scores.greedy_n);
    }
    ctx->save_for_backward({hidden_nh, weight_vh, target_n, lse_n, entropy_n});
    ctx->saved_data["chunk_rows"] = chunk_rows;
    ctx->saved_data["temperature"] = temperature;
    ctx->mark_non_differentiable({greedy_n});
    ctx->set_materialize_grads(false);
    return {log_prob_n, entropy_n, greedy_n};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &hidden_nh = saved[0], &weight_vh = saved[1], &target_n = saved[2], &lse_n = saved[3];
    const at::Tensor& entropy_n = saved[4];
    const at::Tensor &dlog_prob_n = grads[0], &dentropy_n = grads[1];
    const int64_t chunk_rows = ctx->saved_data["chunk_rows"].toInt();
    const double temperature = ctx->saved_data["temperature"].toDouble();
    const int64_t rows = hidden_nh.size(0);

    const auto wide = at::toOpMathType(hidden_nh.scalar_type());
    at::Tensor dhidden_nh, dweight_vh;
    if (ctx->needs_input_grad(0)) dhidden_nh = at::zeros_like(hidden_nh);
    // A gradient that exists in the wider type takes the sum itself, and autograd gets none.
    const bool direct = weight_vh.grad().defined() && wide != weight_vh.scalar_type();
    if (direct) {
      dweight_vh = weight_vh.grad();
    } else if (ctx->needs_input_grad(1)) {
      dweight_vh = at::zeros(weight_vh.sizes(), weight_vh.options().dtype(wide));
    }
    const bool reached = dlog_prob_n.defined() || dentropy_n.defined();
    for (int64_t begin = 0; reached && begin < rows; begin += chunk_rows) {
      const int64_t end = std::min(rows, begin + chunk_rows);
      const at::Tensor hidden_chunk = hidden_nh.slice(0, begin, end);
      const auto of_chunk = [&](const at::Tensor& x) { return x.defined() ? x.slice(0, begin, end) : x; };
      Chunk chunk = make_chunk(hidden_chunk, weight_vh, of_chunk(target_n), temperature);
      chunk.lse_n = of_chunk(lse_n);
      chunk.entropy_n = of_chunk(entropy_n);
      const at::Tensor dlogits_nv = logits_gradient(chunk, of_chunk(dlog_prob_n), of_chunk(dentropy_n));
      if (dhidden_nh.defined()) product_into(dhidden_nh.slice(0, begin, end), dlogits_nv, weight_vh);
      if (dweight_vh.defined()) add_product(dweight_vh, dlogits_nv.t(), hidden_chunk);
    }
    return {dhidden_nh, direct ? at::Tensor() : dweight_vh, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

void check_inputs(const at::Tensor& hidden_nh, const at::Tensor& target_n, const LinearLogProbOptions& options) {
  RINGFOLD_ASSERT(options.chunk_rows >= 1, "a chunk has at least one row");
  RINGFOLD_ASSERT(options.temperature > 0, "a temperature is positive");
  RINGFOLD_ASSERT(hidden_nh.dim() == 2 && target_n.dim() == 1 && hidden_nh.size(0) == target_n.size(0),
                  "one target a row");
}

// The gradients that the loss sends to log-prob and entropy; undefined where it does not use them.
std::pair<at::Tensor, at::Tensor> score_gradients(const TokenScores& scores, const ChunkLoss& loss, int64_t begin) {
  const at::AutoGradMode with_grad(true);
  const TokenScores leaves{scores.log_prob_n.detach().requires_grad_(), scores.entropy_n.detach().requires_grad_(),
                           scores.greedy_n};
  const at::Tensor value = loss(leaves, begin);
  if (value.requires_grad()) value.backward();
  return {leaves.log_prob_n.grad(), leaves.entropy_n.grad()};
}

}  // namespace

at::Tensor linear_loss_gradients(const at::Tensor& hidden_nh, const at::Tensor& weight_vh, const at::Tensor& target_n,
                                 const LinearLogProbOptions& options, const ChunkLoss& loss,
                                 const at::Tensor& dweight_vh) {
  check_inputs(hidden_nh, target_n, options);
  const at::NoGradGuard no_grad;
  const at::Tensor dhidden_nh = at::zeros_like(hidden_nh);
  for (int64_t begin = 0; begin < hidden_nh.size(0); begin += options.chunk_rows) {
    const int64_t end = std::min(hidden_nh.size(0), begin + options.chunk_rows);
    const at::Tensor hidden_chunk = hidden_nh.slice(0, begin, end);
    Chunk chunk = make_chunk(hidden_chunk, weight_vh, target_n.slice(0, begin, end), options.temperature);
    const auto [dlog_prob_n, dentropy_n] = score_gradients(score_chunk(chunk, /*keep_logits=*/true), loss, begin);
    if (!dlog_prob_n.defined() && !dentropy_n.defined()) continue;
    const at::Tensor dlogits_nv = logits_gradient(chunk, dlog_prob_n, dentropy_n);
    chunk.logits_nv.reset();
    product_into(dhidden_nh.slice(0, begin, end), dlogits_nv, weight_vh);
    add_product(dweight_vh, dlogits_nv.t(), hidden_chunk);
  }
  return dhidden_nh;
}

TokenScores linear_log_prob(const at::Tensor& hidden_nh, const at::Tensor& weight_vh, const at::Tensor& target_n,
                            const LinearLogProbOptions& options) {
  check_inputs(hidden_nh, target_n, options);
  const variable_list out =
      LinearLogProb::apply(hidden_nh, weight_vh, target_n, options.chunk_rows, options.temperature);
  return {out[0], out[1], out[2]};
}

}  // namespace ringfold
