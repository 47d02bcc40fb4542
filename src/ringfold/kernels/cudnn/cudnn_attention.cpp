// Plans by shape, and their runs. A plan serves every pack within its maxima, so maxima are rounded up; packs of equal
// samples that come back get a plan of their own.
#include "ringfold/kernels/cudnn_attention.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cudnn/Handle.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>

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

// The plans of a process. Forward runs on the caller's thread, backward on autograd's; never at once, but the maps must
// not care.
class Plans {
 public:
  // cuDNN has an end of its own at the end of the process: this one never ends.
  static Plans& all() {
    static auto& plans = *new Plans;
    return plans;
  }

  Graph& of(const PlanKey& key, cudnnHandle_t handle) {
    const std::lock_guard lock(mutex_);
    auto& plan = plans_[key];
    if (!plan) {
      auto graph = std::make_unique<Graph>();
      key.backward ? build_attention_backward(*graph, key.shape) : build_attention_forward(*graph, key.shape);
      graph->compile(handle);
      plan = std::move(graph);
    }
    return *plan;
  }

  // Of a shape of equal entries: a plan of its own, where it has come back so often that one pays; else null.
  Graph* own(const PlanKey& key, cudnnHandle_t handle) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto made = plans_.find(key); made != plans_.end()) return made->second.get();
      if (own_ >= kMostOwnPlans || ++calls_[key] <= kCallsWithoutPlan) return nullptr;
      ++own_;
    }
    try {
      return &of(key, handle);
    } catch (const std::runtime_error&) {  // cuDNN has none: null is kept
      return nullptr;
    }
  }

 private:
  // A plan costs up to 0.1 s once; a call of 8,192 tokens gains 0.1 to 0.2 ms by it. A length that comes once, in the
  // log-prob passes and recomputed for the backward too, makes some 100 calls and no plan.
  static constexpr int64_t kCallsWithoutPlan = 256, kMostOwnPlans = 64;

  std::mutex mutex_;
  std::map<PlanKey, std::unique_ptr<Graph>> plans_;
  std::map<PlanKey, int64_t> calls_;  // of shapes that may get one
  int64_t own_ = 0;
};

// Fewer rows are not worth a plan, and a plan for a single row writes the LSE of a group's first head only.
constexpr int64_t kFewestRowsOfOwnPlan = 256;

// The shape with neither counts nor offsets (5 to 7 % faster, docs/benchmarks/gpu.md), if the blocks have one.
std::optional<AttentionShape> equal_shape(const VarlenBlocks& blocks, AttentionShape shape) {
  if (!blocks.equal_steps || std::min(blocks.max_q, blocks.max_kv) < kFewestRowsOfOwnPlan) return std::nullopt;
  // Graphs promise cuDNN 16 bytes; of what begins at the first block, LSE has the shortest rows.
  if (blocks.rows[0].q_begin * shape.heads % 4 != 0) return std::nullopt;
  shape.batch = static_cast<int64_t>(blocks.rows.size());
  shape.max_q = blocks.max_q;
  shape.max_kv = blocks.max_kv;
  shape.equal = true;
  shape.q_step = blocks.equal_steps->q;
  shape.kv_step = blocks.equal_steps->kv;
  return shape;
}

// The tensors of a call, by the rows that they go by.
struct Operands {
  std::unordered_map<int64_t, at::Tensor> of_queries, of_keys;
};

// From row `begin` on.
void bind(std::unordered_map<int64_t, void*>& pointers, const std::unordered_map<int64_t, at::Tensor>& operands,
          int64_t begin) {
  for (const auto& [id, x] : operands) {
    pointers[id] = static_cast<char*>(x.data_ptr()) + begin * x.stride(0) * static_cast<int64_t>(x.element_size());
  }
}

void run(const VarlenBlocks& blocks, double scale, bool backward, const Operands& operands) {
  const at::Tensor &q = operands.of_queries.at(kQ), &k = operands.of_keys.at(kK);
  const int64_t rows = round_up(std::max(blocks.max_q, blocks.max_kv)), packed_rows = std::max(q.size(0), k.size(0));
  PlanKey key{.backward = backward, .device = q.device().index()};
  key.shape = {.batch = blocks.capacity,
               .heads = blocks.shape.heads,
               .kv_heads = blocks.shape.kv_heads,
               .head_dim = blocks.shape.head_dim,
               .max_q = rows,
               .max_kv = rows,
               .causal = blocks.mask == BlockMask::kCausal,
               .scale = static_cast<float>(scale)};
  const cudnnHandle_t handle = at::native::getCudnnHandle();  // of this thread, on the current stream
  Graph* plan = nullptr;
  if (const auto equal = equal_shape(blocks, key.shape)) {
    PlanKey own = key;
    own.shape = *equal;
    plan = Plans::all().own(own, handle);
  }
  std::unordered_map<int64_t, void*> pointers;
  bind(pointers, operands.of_queries, plan != nullptr ? blocks.rows[0].q_begin : 0);
  bind(pointers, operands.of_keys, plan != nullptr ? blocks.rows[0].kv_begin : 0);
  if (plan == nullptr) {
    plan = &Plans::all().of(key, handle);
    pointers[kQueryCounts] = blocks.q_count_b.data_ptr();
    pointers[kKeyCounts] = blocks.kv_count_b.data_ptr();
    pointers[kQueryOffsets] = pointers[kOutOffsets] = blocks.q_offset_b.data_ptr();
    pointers[kKeyOffsets] = pointers[kValueOffsets] = blocks.kv_offset_b.data_ptr();
    pointers[kLseOffsets] = blocks.lse_offset_b.data_ptr();
  }
  const at::Tensor workspace = at::empty({plan->workspace_bytes(packed_rows)}, q.options().dtype(at::kByte));
  plan->run(handle, pointers, packed_rows, workspace.data_ptr());
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
  run(blocks, scale, /*backward=*/false, {{{kQ, q}, {kOut, out_thd}, {kLse, lse_th}}, {{kK, k}, {kV, v}}});
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
  run(blocks, scale, /*backward=*/true,
      {{{kQ, q}, {kOut, out}, {kDout, dout}, {kLse, lse_th}, {kDq, dq}}, {{kK, k}, {kV, v}, {kDk, dk}, {kDv, dv}}});
  return {dq, dk, dv};
}

}  // namespace ringfold
