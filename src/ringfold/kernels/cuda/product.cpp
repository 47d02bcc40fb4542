// cuBLASLt counts in columns: a row-major (m, n) is a column-major (n, m), so that out = a b is out^T = b^T a^T.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <utility>

#include "ringfold/base/error.h"
#include "ringfold/kernels/fused.h"

namespace ringfold::fused {
namespace {

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw RunError(
      fmt::format("[kernels] cuBLASLt {}: {}. Hint: cuBLASLt comes with torch's CUDA wheel; put its folder "
                  "first in LD_LIBRARY_PATH",
                  call, cublasLtGetStatusString(status)));
}

// A factor as cuBLASLt sees it: column-major, perhaps to be transposed.
struct Factor {
  int64_t rows, columns, stride;
  bool transposed;
  int64_t alignment;
  auto operator<=>(const Factor&) const = default;
};

int64_t alignment_of(const at::Tensor& x) {
  const auto address = reinterpret_cast<uintptr_t>(x.const_data_ptr());
  return int64_t{1} << std::countr_zero(address | 256U);
}

// x^T as an operand: contiguous rows are the columns of x^T.
Factor factor_of(const at::Tensor& x) {
  if (x.stride(1) == 1) return {x.size(1), x.size(0), std::max(x.stride(0), x.size(1)), false, alignment_of(x)};
  RINGFOLD_ASSERT(x.stride(0) == 1, "rows or columns of a factor are contiguous");
  return {x.size(0), x.size(1), std::max(x.stride(1), x.size(0)), true, alignment_of(x)};
}

struct Shape {
  Factor b, a, out;
  bool wide, adds;
  auto operator<=>(const Shape&) const = default;
  int64_t inner() const { return a.transposed ? a.columns : a.rows; }
};

template <typename T, auto kDestroy>
struct Handle {
  T value = nullptr;
  Handle() = default;
  Handle(Handle&& other) noexcept : value(std::exchange(other.value, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value, other.value);
    return *this;
  }
  ~Handle() {
    if (value != nullptr) kDestroy(value);
  }
};
using Layout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Operation = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

struct Plan {
  Operation operation;
  Layout a, b, out;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;
};

Layout layout_of(const Factor& x, cudaDataType_t type) {
  Layout layout;
  check(cublasLtMatrixLayoutCreate(&layout.value, type, static_cast<uint64_t>(x.rows), static_cast<uint64_t>(x.columns),
                                   x.stride),
        "layout");
  return layout;
}

int tile_of(const cublasLtMatmulAlgo_t& algorithm) {
  int tile = 0;
  size_t written = 0;
  check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &written),
        "tile");
  return tile;
}

// Which of the library's proposals to take. It ranks them by their speed alone at the full clock. In training the card
// runs into its power cap, where other kernels win, by 3 to 8 % (docs/benchmarks/gpu.md): with a short inner dimension
// or an fp32 sum to add to, those of two small tiles in turn, which hide the one's epilogue behind the other's
// products; else the 256 x 128 tile.
size_t choose(const Shape& shape, const cublasLtMatmulHeuristicResult_t* proposals, size_t count) {
  constexpr int64_t kShortInner = 3072;
  constexpr std::array kInTurn = {CUBLASLT_MATMUL_TILE_176x128, CUBLASLT_MATMUL_TILE_168x128,
                                  CUBLASLT_MATMUL_TILE_128x160, CUBLASLT_MATMUL_TILE_128x128};
  constexpr std::array kLarge = {CUBLASLT_MATMUL_TILE_256x128};
  const auto first_of = [&](const auto& tiles) {
    const auto* end = proposals + count;
    return static_cast<size_t>(std::find_if(proposals, end,
                                            [&](const auto& proposal) {
                                              return std::find(tiles.begin(), tiles.end(), tile_of(proposal.algo)) !=
                                                     tiles.end();
                                            }) -
                               proposals);
  };
  const bool long_epilogue = shape.inner() <= kShortInner || (shape.wide && shape.adds);
  const size_t wanted = long_epilogue ? first_of(kInTurn) : first_of(kLarge);
  return wanted < count ? wanted : 0;
}

Plan make_plan(cublasLtHandle_t handle, const Shape& shape) {
  Plan plan;
  check(cublasLtMatmulDescCreate(&plan.operation.value, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(plan.operation.value, attribute, &operation, sizeof operation), "description");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, shape.b.transposed);
  set(CUBLASLT_MATMUL_DESC_TRANSB, shape.a.transposed);
  plan.b = layout_of(shape.b, CUDA_R_16BF);
  plan.a = layout_of(shape.a, CUDA_R_16BF);
  plan.out = layout_of(shape.out, shape.wide ? CUDA_R_32F : CUDA_R_16BF);

  Preference preference;
  check(cublasLtMatmulPreferenceCreate(&preference.value), "preference");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference.value, attribute, &value, sizeof value), "preference");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{at::cuda::getCUDABlasLtWorkspaceSize()});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(shape.b.alignment));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(shape.a.alignment));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(shape.out.alignment));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(shape.out.alignment));
  std::array<cublasLtMatmulHeuristicResult_t, 8> proposals{};
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle, plan.operation.value, plan.b.value, plan.a.value, plan.out.value,
                                       plan.out.value, preference.value, static_cast<int>(proposals.size()),
                                       proposals.data(), &count),
        "choice of a kernel");
  RINGFOLD_ASSERT(count > 0, "cuBLASLt has a kernel for every product");
  const auto& chosen = proposals.at(choose(shape, proposals.data(), static_cast<size_t>(count)));
  plan.algorithm = chosen.algo;
  plan.workspace_bytes = chosen.workspaceSize;
  return plan;
}

// Packs have many sizes; a plan costs a tenth of a millisecond of the host and is made once for each.
const Plan& plan_of(cublasLtHandle_t handle, const Shape& shape) {
  static std::mutex mutex;
  static std::map<Shape, Plan> plans;
  const std::lock_guard lock(mutex);
  const auto found = plans.find(shape);
  return found != plans.end() ? found->second : plans.emplace(shape, make_plan(handle, shape)).first->second;
}

}  // namespace

void product(const at::Tensor& out, const at::Tensor& addend, const at::Tensor& a, const at::Tensor& b) {
  RINGFOLD_ASSERT(a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16, "factors are bf16");
  RINGFOLD_ASSERT(a.size(1) == b.size(0) && out.size(0) == a.size(0) && out.size(1) == b.size(1), "shapes match");
  RINGFOLD_ASSERT(out.stride(1) == 1, "rows of a product are contiguous");
  if (out.numel() == 0) return;
  if (a.size(1) == 0) {  // no factor: cuBLASLt refuses
    if (!addend.defined()) out.zero_();
    if (addend.defined() && !addend.is_same(out)) out.copy_(addend);
    return;
  }
  const Factor out_factor = factor_of(out);
  if (addend.defined()) {
    const Factor added = factor_of(addend);
    RINGFOLD_ASSERT(added.stride == out_factor.stride && !added.transposed && addend.scalar_type() == out.scalar_type(),
                    "what is added lies in memory as the product does");
  }
  const bool wide = out.scalar_type() == at::kFloat;
  const cublasLtHandle_t handle = at::cuda::getCurrentCUDABlasLtHandle();
  const Plan& plan = plan_of(handle, {factor_of(b), factor_of(a), out_factor, wide, addend.defined()});
  const at::Tensor workspace = at::empty({static_cast<int64_t>(plan.workspace_bytes)}, a.options().dtype(at::kByte));
  const float one = 1, beta = addend.defined() ? 1 : 0;
  check(cublasLtMatmul(handle, plan.operation.value, &one, b.const_data_ptr(), plan.b.value, a.const_data_ptr(),
                       plan.a.value, &beta, (addend.defined() ? addend : out).const_data_ptr(), plan.out.value,
                       out.data_ptr(), plan.out.value, &plan.algorithm, workspace.data_ptr(), plan.workspace_bytes,
                       at::cuda::getCurrentCUDAStream(a.device().index()).stream()),
        "product");
}

}  // namespace ringfold::fused
