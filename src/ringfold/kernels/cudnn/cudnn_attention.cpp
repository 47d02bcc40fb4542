// Plans by shape, and their runs. A plan serves every pack within its maxima, so maxima are rounded up.
#include "ringfold/kernels/cudnn_attention.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cudnn/Handle.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <memory>
#include <mutex>

#include "ringfold/base/error.h"
#include "ringfold/kernels/cudnn/attention_graph.h"

namespace ringfold {
namespace {

using namespace cudnn_detail;

// The longest block, as plans know it: 512, 2048, 8192 ... so that a run with packs of all sizes soon has all its
// plans.
int64_t round_up(int64_t rows) {
  int64_t power = 512;
  while (power < rows) power *= 4;
  return power;
}

struct PlanKey {
  AttentionShape shape;
  bool backward = false;
  int device = 0;
  auto operator<=>(const PlanKey&) const = default;
};

// Forward runs on the caller's thread, backward on autograd's; never at once, but the map must not care.
Graph& plan_of(const PlanKey& key, cudnnHandle_t handle) {
  static std::mutex mutex;
  static auto& plans = *new std::map<PlanKey, std::unique_ptr<Graph>>;  // outlives cuDNN's own end of the process
  const std::lock_guard lock(mutex);
  auto& plan = plans[key];
  if (!plan) {
    auto graph = std::make_unique<Graph>();
    key.backward ? build_attention_backward(*graph, key.shape) : build_attention_forward(*graph, key.shape);
    graph->compile(handle);
    plan = std::move(graph);
  }
  return *plan;
}

void run(const VarlenBlocks& blocks, int64_t q_rows, int64_t kv_rows, double scale, bool backward,
         std::unordered_map<int64_t, void*> pointers, const at::TensorOptions& options) {
  PlanKey key;
  key.backward = backward;
  key.device = options.device().index();
  const int64_t rows = round_up(std::max(blocks.max_q, blocks.max_kv)), packed_rows = std::max(q_rows, kv_rows);
  key.shape = {blocks.capacity,
               blocks.shape.heads,
               blocks.shape.kv_heads,
               blocks.shape.head_dim,
               rows,
               rows,
               blocks.mask == BlockMask::kCausal,
               static_cast<float>(scale)};
  pointers[kQueryCounts] = blocks.q_count_b.data_ptr();
  pointers[kKeyCounts] = blocks.kv_count_b.data_ptr();
  pointers[kQueryOffsets] = pointers[kOutOffsets] = blocks.q_offset_b.data_ptr();
  pointers[kKeyOffsets] = pointers[kValueOffsets] = blocks.kv_offset_b.data_ptr();
  pointers[kLseOffsets] = blocks.lse_offset_b.data_ptr();
  const cudnnHandle_t handle = at::native::getCudnnHandle();  // of this thread, on the current stream
  Graph& plan = plan_of(key, handle);
  const at::Tensor workspace = at::empty({plan.workspace_bytes(packed_rows)}, options.dtype(at::kByte));
  plan.run(handle, pointers, packed_rows, workspace.data_ptr());
}

bool covers(int64_t rows, const at::Tensor& x) {
  return rows == x.size(0);
}

}  // namespace

bool cudnn_has_attention(at::Device device, const HeadShape& shape) {
  // Found right there by tests; cuDNN itself accepts more.
  const bool known_dim = shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256;
  return known_dim && at::cuda::getDeviceProperties(device.index())->major == 9;
}

AttentionBlock cudnn_attention_forward(const VarlenBlocks& blocks, const at::Tensor& q_thd, const at::Tensor& k_sgd,
                                       const at::Tensor& v_sgd, double scale) {
  RINGFOLD_ASSERT(q_thd.scalar_type() == at::kBFloat16, "cuDNN attention is built for bf16");
  const at::Tensor q = q_thd.contiguous(), k = k_sgd.contiguous(), v = v_sgd.contiguous();
  const auto float_options = q.options().dtype(at::kFloat);
  const bool all = covers(blocks.q_rows, q);
  const at::Tensor out_thd = all ? at::empty_like(q) : at::zeros_like(q);
  const at::Tensor lse_th =
      all ? at::empty({q.size(0), q.size(1)}, float_options)
          : at::full({q.size(0), q.size(1)}, -std::numeric_limits<float>::infinity(), float_options);
  run(blocks, q.size(0), k.size(0), scale, /*backward=*/false,
      {{kQ, q.data_ptr()},
       {kK, k.data_ptr()},
       {kV, v.data_ptr()},
       {kOut, out_thd.data_ptr()},
       {kLse, lse_th.data_ptr()}},
      q.options());
  return {out_thd, lse_th.t()};
}

AttentionGrads cudnn_attention_backward(const VarlenBlocks& blocks, const at::Tensor& dout_thd, const at::Tensor& q_thd,
                                        const at::Tensor& k_sgd, const at::Tensor& v_sgd, const at::Tensor& out_thd,
                                        const at::Tensor& lse_ht, double scale) {
  const at::Tensor q = q_thd.contiguous(), k = k_sgd.contiguous(), v = v_sgd.contiguous();
  const at::Tensor out = out_thd.contiguous(), dout = dout_thd.contiguous(), lse_th = lse_ht.t().contiguous();
  // dq must have the strides of q, or cuDNN goes wrong silently.
  const at::Tensor dq = covers(blocks.q_rows, q) ? at::empty_like(q) : at::zeros_like(q);
  const bool all_keys = covers(blocks.kv_rows, k);
  const at::Tensor dk = all_keys ? at::empty_like(k) : at::zeros_like(k);
  const at::Tensor dv = all_keys ? at::empty_like(v) : at::zeros_like(v);
  run(blocks, q.size(0), k.size(0), scale, /*backward=*/true,
      {{kQ, q.data_ptr()},
       {kK, k.data_ptr()},
       {kV, v.data_ptr()},
       {kOut, out.data_ptr()},
       {kDout, dout.data_ptr()},
       {kLse, lse_th.data_ptr()},
       {kDq, dq.data_ptr()},
       {kDk, dk.data_ptr()},
       {kDv, dv.data_ptr()}},
      q.options());
  return {dq, dk, dv};
}

}  // namespace ringfold
