// A graph of cuDNN operations, compiled to one fused kernel and run many times, straight on cuDNN's C interface
// (cudnn.h, "backend" functions). Tensors are named by ids; device pointers are bound to the ids at each run.
// Source: NVIDIA cuDNN backend API, version 9.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ringfold::cudnn_detail {

using Dims = std::vector<int64_t>;

// One of cuDNN's opaque objects.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  Descriptor& set(cudnnBackendAttributeName_t name, int64_t value);
  Descriptor& set(cudnnBackendAttributeName_t name, bool value);
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnPointwiseMode_t value);
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnReduceTensorOp_t value);
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendHeurMode_t value);
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnHandle_t value);
  Descriptor& set(cudnnBackendAttributeName_t name, const Dims& values);
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value);
  Descriptor& set(cudnnBackendAttributeName_t name, const std::vector<Descriptor*>& values);
  Descriptor& set_pointers(cudnnBackendAttributeName_t name, const std::vector<void*>& values);
  Descriptor& finalize();
  cudnnBackendDescriptor_t get() const { return raw_; }

 private:
  Descriptor& put(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void* values);
  cudnnBackendDescriptor_t raw_ = nullptr;
};

struct GraphTensor {
  int64_t id = 0;
  Dims dims, strides;
  Descriptor* descriptor = nullptr;
};

class Graph {
 public:
  // Bound by the caller at each run. `offsets`: starts of the batch entries, in elements (a ragged tensor).
  const GraphTensor* bound(int64_t id, cudnnDataType_t type, Dims dims, Dims strides,
                           const GraphTensor* offsets = nullptr);
  // Exists only inside the fused kernel.
  const GraphTensor* inner(cudnnDataType_t type, Dims dims, Dims strides, const GraphTensor* offsets = nullptr);
  // Lies in the workspace, with `row_bytes` for each row of the run.
  const GraphTensor* scratch(cudnnDataType_t type, Dims dims, Dims strides, const GraphTensor* offsets,
                             int64_t row_bytes);
  const GraphTensor* constant(float value);

  // c = a b with the numbers of rows, columns and inner elements overridden by tensors (null: as declared).
  struct Counts {
    const GraphTensor* m = nullptr;
    const GraphTensor* n = nullptr;
    const GraphTensor* k = nullptr;
  };
  void matmul(const GraphTensor* a, const GraphTensor* b, const GraphTensor* c, const Counts& counts);
  struct Pointwise {
    cudnnDataType_t out = CUDNN_DATA_FLOAT;
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    int64_t axis = -1;
  };
  const GraphTensor* pointwise(cudnnPointwiseMode_t mode, const GraphTensor* x, const GraphTensor* b = nullptr);
  const GraphTensor* pointwise(cudnnPointwiseMode_t mode, const GraphTensor* x, const GraphTensor* b,
                               const GraphTensor* t, const Pointwise& types);
  void pointwise_into(const GraphTensor* y, cudnnPointwiseMode_t mode, const GraphTensor* x, const GraphTensor* b,
                      const GraphTensor* t, const Pointwise& types);
  void reduce(cudnnReduceTensorOp_t operation, const GraphTensor* x, const GraphTensor* y);
  void reshape(const GraphTensor* x, const GraphTensor* y);

  // Chooses an engine and compiles; throws std::runtime_error with cuDNN's words.
  void compile(cudnnHandle_t handle);
  // Of a run over so many rows of packed tensors.
  int64_t workspace_bytes(int64_t rows) const;
  // Enqueues on the handle's stream; returns at once.
  void run(cudnnHandle_t handle, const std::unordered_map<int64_t, void*>& pointers, int64_t rows, void* workspace);

 private:
  enum class Kind { kBound, kInner, kScratch, kConstant };
  const GraphTensor* make(int64_t id, Kind kind, cudnnDataType_t type, Dims dims, Dims strides,
                          const GraphTensor* offsets);
  Descriptor& add(cudnnBackendDescriptorType_t type) { return descriptors_.emplace_back(type); }
  void operation(Descriptor& descriptor);

  std::deque<Descriptor> descriptors_;
  std::deque<GraphTensor> tensors_;
  std::vector<Descriptor*> operations_;
  std::vector<int64_t> bound_ids_;
  std::vector<std::pair<int64_t, int64_t>> scratch_;  // id, bytes a row
  std::vector<std::pair<int64_t, float>> constants_;
  Descriptor* plan_ = nullptr;
  int64_t next_id_ = 1000;  // the caller's ids lie below
  int64_t engine_bytes_ = 0;
};

}  // namespace ringfold::cudnn_detail
