#include "ringfold/kernels/cudnn/graph.h"

#include <stdexcept>
#include <string>

namespace ringfold::cudnn_detail {
namespace {

constexpr int64_t kAlignment = 256;

// A tile more than the rows: kernels work in tiles.
int64_t scratch_bytes(int64_t rows, int64_t row_bytes) {
  constexpr int64_t kTileRows = 128;
  return ((rows + kTileRows) * row_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  throw std::runtime_error(std::string("cuDNN: ") + what + ": " + cudnnGetErrorString(status) + " " + detail);
}

}  // namespace

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check(cudnnBackendCreateDescriptor(type, &raw_), "create");
}

Descriptor::~Descriptor() {
  cudnnBackendDestroyDescriptor(raw_);
}

Descriptor& Descriptor::put(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                            const void* values) {
  check(cudnnBackendSetAttribute(raw_, name, type, count, values), "set attribute");
  return *this;
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, int64_t value) {
  return put(name, CUDNN_TYPE_INT64, 1, &value);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, bool value) {
  return put(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  return put(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnPointwiseMode_t value) {
  return put(name, CUDNN_TYPE_POINTWISE_MODE, 1, &value);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnReduceTensorOp_t value) {
  return put(name, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &value);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendHeurMode_t value) {
  return put(name, CUDNN_TYPE_HEUR_MODE, 1, &value);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
  return put(name, CUDNN_TYPE_HANDLE, 1, &value);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const Dims& values) {
  return put(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  return put(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.raw_);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const std::vector<Descriptor*>& values) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor* value : values) raw.push_back(value->get());
  return put(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()), raw.data());
}
Descriptor& Descriptor::set_pointers(cudnnBackendAttributeName_t name, const std::vector<void*>& values) {
  return put(name, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(values.size()), values.data());
}
Descriptor& Descriptor::finalize() {
  check(cudnnBackendFinalize(raw_), "finalize");
  return *this;
}

const GraphTensor* Graph::make(int64_t id, Kind kind, cudnnDataType_t type, Dims dims, Dims strides,
                               const GraphTensor* offsets) {
  Descriptor& descriptor = add(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
                               .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
                               .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
                               .set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
                               .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
                               .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
                               .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, kind == Kind::kInner)
                               .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, kind == Kind::kConstant);
  if (offsets != nullptr) descriptor.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, *offsets->descriptor);
  descriptor.finalize();
  return &tensors_.emplace_back(GraphTensor{id, std::move(dims), std::move(strides), &descriptor});
}

const GraphTensor* Graph::bound(int64_t id, cudnnDataType_t type, Dims dims, Dims strides, const GraphTensor* offsets) {
  bound_ids_.push_back(id);
  return make(id, Kind::kBound, type, std::move(dims), std::move(strides), offsets);
}

const GraphTensor* Graph::inner(cudnnDataType_t type, Dims dims, Dims strides, const GraphTensor* offsets) {
  return make(next_id_++, Kind::kInner, type, std::move(dims), std::move(strides), offsets);
}

const GraphTensor* Graph::scratch(cudnnDataType_t type, Dims dims, Dims strides, const GraphTensor* offsets,
                                  int64_t row_bytes) {
  scratch_.emplace_back(next_id_, row_bytes);
  return make(next_id_++, Kind::kScratch, type, std::move(dims), std::move(strides), offsets);
}

const GraphTensor* Graph::constant(float value) {
  constants_.emplace_back(next_id_, value);
  return make(next_id_++, Kind::kConstant, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, nullptr);
}

void Graph::operation(Descriptor& descriptor) {
  operations_.push_back(&descriptor.finalize());
}

void Graph::matmul(const GraphTensor* a, const GraphTensor* b, const GraphTensor* c, const Counts& counts) {
  Descriptor& kind = add(CUDNN_BACKEND_MATMUL_DESCRIPTOR).set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  Descriptor& descriptor = add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
                               .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a->descriptor)
                               .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b->descriptor)
                               .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *c->descriptor)
                               .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
  if (counts.m) descriptor.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, *counts.m->descriptor);
  if (counts.n) descriptor.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, *counts.n->descriptor);
  if (counts.k) descriptor.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, *counts.k->descriptor);
  operation(descriptor);
}

const GraphTensor* Graph::pointwise(cudnnPointwiseMode_t mode, const GraphTensor* x, const GraphTensor* b) {
  return pointwise(mode, x, b, nullptr, {});
}

const GraphTensor* Graph::pointwise(cudnnPointwiseMode_t mode, const GraphTensor* x, const GraphTensor* b,
                                    const GraphTensor* t, const Pointwise& types) {
  const GraphTensor* y = inner(types.out, x->dims, x->strides);
  pointwise_into(y, mode, x, b, t, types);
  return y;
}

void Graph::pointwise_into(const GraphTensor* y, cudnnPointwiseMode_t mode, const GraphTensor* x, const GraphTensor* b,
                           const GraphTensor* t, const Pointwise& types) {
  Descriptor& kind = add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
                         .set(CUDNN_ATTR_POINTWISE_MODE, mode)
                         .set(CUDNN_ATTR_POINTWISE_MATH_PREC, types.compute);
  if (types.axis >= 0) kind.set(CUDNN_ATTR_POINTWISE_AXIS, types.axis);
  kind.finalize();
  Descriptor& descriptor = add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
                               .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind)
                               .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x->descriptor);
  if (b != nullptr) descriptor.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b->descriptor);
  if (t != nullptr) descriptor.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *t->descriptor);
  operation(descriptor.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y->descriptor));
}

void Graph::reduce(cudnnReduceTensorOp_t how, const GraphTensor* x, const GraphTensor* y) {
  Descriptor& kind = add(CUDNN_BACKEND_REDUCTION_DESCRIPTOR)
                         .set(CUDNN_ATTR_REDUCTION_OPERATOR, how)
                         .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
                         .finalize();
  operation(add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
                .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x->descriptor)
                .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *y->descriptor)
                .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind));
}

void Graph::reshape(const GraphTensor* x, const GraphTensor* y) {
  operation(add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
                .set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x->descriptor)
                .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *y->descriptor));
}

void Graph::compile(cudnnHandle_t handle) {
  Descriptor& graph = add(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
                          .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_)
                          .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle)
                          .finalize();
  Descriptor& heuristic = add(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
                              .set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
                              .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A)
                              .finalize();
  int64_t count = 0;
  check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                 &count, nullptr),
        "number of engines");
  std::vector<Descriptor*> engines;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    engines.push_back(&add(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    raw.push_back(engines.back()->get());
  }
  if (count > 0) {
    check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                   &count, raw.data()),
          "engines");
  }
  // The first that compiles is the fastest in every case measured.
  std::string reason = "no engine";
  for (int64_t i = 0; i < count && plan_ == nullptr; ++i) {
    try {
      plan_ = &add(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
                   .set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle)
                   .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *engines[static_cast<size_t>(i)])
                   .finalize();
    } catch (const std::runtime_error& error) {
      reason = error.what();
    }
  }
  if (plan_ == nullptr) throw std::runtime_error("cuDNN: no plan: " + reason);
  int64_t one = 0;
  check(cudnnBackendGetAttribute(plan_->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &one,
                                 &engine_bytes_),
        "workspace size");
}

int64_t Graph::workspace_bytes(int64_t rows) const {
  int64_t bytes = engine_bytes_;
  for (const auto& [id, row_bytes] : scratch_) bytes += scratch_bytes(rows, row_bytes);
  return bytes;
}

void Graph::run(cudnnHandle_t handle, const std::unordered_map<int64_t, void*>& pointers, int64_t rows,
                void* workspace) {
  Dims ids;
  std::vector<void*> values;
  const auto bind = [&](int64_t id, void* value) {
    ids.push_back(id);
    values.push_back(value);
  };
  auto* base = static_cast<char*>(workspace);
  for (const int64_t id : bound_ids_) bind(id, pointers.at(id));
  for (const auto& [id, row_bytes] : scratch_) {
    bind(id, base);
    base += scratch_bytes(rows, row_bytes);
  }
  for (auto& [id, value] : constants_) bind(id, &value);
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set_pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, values)
      .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .set_pointers(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {base})
      .finalize();
  check(cudnnBackendExecute(handle, plan_->get(), pack.get()), "execute");
}

}  // namespace ringfold::cudnn_detail
