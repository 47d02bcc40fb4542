// Collectives of all ranks of a lane, on a communicator of their own (spec 4): gradient reduction, metrics, agreement.
// Used before the first and after the last CP exchange that this rank has in a step. Other ranks may still have theirs;
// on GPUs the reduction starts inside the last backward of a rank whose last pack has none (train/step.cpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ringfold/base/ids.h"

namespace ringfold {

// A collective under way; its tensors are not touched until wait() has returned. On a GPU the current stream waits, not
// the host.
class PendingCollective {
 public:
  virtual ~PendingCollective() = default;
  virtual void wait() = 0;
};

class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual LaneRank rank() const = 0;
  virtual int size() const = 0;
  // In place, contiguous tensors of equal shape on every rank. `what` names the operation in errors. The result is
  // the same on every rank, bit for bit, and on every run.
  virtual void all_reduce_sum(at::Tensor& values, std::string_view what) = 0;
  virtual void all_reduce_max(at::Tensor& values, std::string_view what) = 0;
  virtual void broadcast(at::Tensor& values, LaneRank root, std::string_view what) = 0;
  // `values` is size() equal slices, the i-th of rank i; its length is a multiple of size(). After the first the own
  // slice holds the sum of all ranks' and the other slices are undefined; after the second every rank has every rank's
  // own slice. Both after one another are an all_reduce_sum, with its bits on the CPU.
  void reduce_scatter_sum(at::Tensor& values, std::string_view what) { start_reduce_scatter_sum(values, what)->wait(); }
  // Every rank starts the same ones in the same order, and nothing else before it has waited for them. On the CPU it is
  // done when this returns.
  virtual std::unique_ptr<PendingCollective> start_reduce_scatter_sum(at::Tensor& values, std::string_view what) = 0;
  virtual void all_gather(at::Tensor& values, std::string_view what) = 0;
  virtual void barrier(std::string_view what) = 0;
  // One value a rank, by lane rank.
  virtual std::vector<uint64_t> all_gather_u64(uint64_t value, std::string_view what) = 0;
  virtual std::vector<double> all_gather_double(double value, std::string_view what) = 0;
};

// Of a collective that was done at once.
class DoneCollective : public PendingCollective {
 public:
  void wait() override {}
};

// Rank i's slice of what reduce_scatter_sum and all_gather take.
at::Tensor lane_slice(const Collectives& collectives, const at::Tensor& values, int i);

}  // namespace ringfold
