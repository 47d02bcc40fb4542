// Parameters and gradients in flat buffers, in parameter order, and the part of them that a rank of the lane updates.
// Weights and gradients are whole on every rank; fp32 masters and optimizer state exist once in the lane (ZeRO stage 1,
// Rajbhandari et al., arXiv:1910.02054):
//
//   flat buffer   | bucket 0            | bucket 1            | ... | padding
//   bucket        | rank 0 | rank 1 | ..| rank 0 | rank 1 | ..|
//
// A step sums the gradients of a bucket into its slices (reduce-scatter), every rank updates its own, and the weights
// of the slices go to all ranks (all-gather, in the weights' own type). Buckets keep temporaries small and are the unit
// of communication; what a rank owns, bucket after bucket, is its owned state. On a lane of one that is the flat
// buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ringfold/device/host_place.h"
#include "ringfold/mesh/collectives.h"
#include "ringfold/models/qwen3/model.h"

namespace ringfold {

// Which of `count` equal shares of the state a rank owns.
struct LaneShard {
  int index = 0;
  int count = 1;
};
inline LaneShard shard_of(const Collectives& lane) {
  return {lane.rank().value(), lane.size()};
}

// Makes every parameter and its gradient a view of one flat buffer each, so that one reduction, one norm and one update
// cover the model. The backward accumulates into the views in place. Weights of half precision have gradients and
// master weights of fp32; for other types the weights are the masters.
class FlatParameters {
 public:
  static constexpr int64_t kBucketElements = int64_t{1} << 26;

  // `most_bucket_elements` bounds a bucket but for the rounding of its slices.
  explicit FlatParameters(std::vector<Parameter>& parameters, LaneShard shard = {},
                          int64_t most_bucket_elements = kBucketElements);

  // Whole, without padding. After reduce_gradients only the owned parts of the gradients mean anything.
  at::Tensor& gradients() { return gradients_; }
  at::Tensor& values() { return values_; }
  bool has_masters() const { return masters_.defined(); }
  // The owned ones in fp32; where there are none, the weights, whole.
  at::Tensor& masters() { return has_masters() ? masters_ : values_; }
  void zero_gradients();

  // The parts of the flat buffer that this rank owns, in order.
  struct OwnedPart {
    int64_t begin = 0;        // in the flat buffer
    int64_t size = 0;         // without padding
    int64_t owned_begin = 0;  // in owned state
  };
  const std::vector<OwnedPart>& owned_parts() const { return owned_parts_; }
  int64_t owned_elements() const { return owned_elements_; }
  // One part of the masters (or weights).
  at::Tensor master_part(const OwnedPart& part);
  // Copies the masters into the weights that the model reads: the owned parts.
  void publish_masters();

  // Sums the gradients over the lane into the owned parts. Every rank of the shard's lane calls it, as the next three.
  void reduce_gradients(Collectives& lane);
  // Before that, when nothing is added any more to the gradients from `begin` on: starts the sums of their buckets. All
  // ranks sum the buckets in the same order, last first, so each may begin when it likes.
  void start_reduction(Collectives& lane, int64_t begin);
  // Where a layer's parameters begin in the flat buffer.
  int64_t begin_of(const std::vector<at::Tensor>& parameters) const;
  // L2 norm of the gradient after reduce_gradients, in fp64; the same bits on every rank and every run.
  double gradient_norm(Collectives& lane) const;
  // Makes the reduced gradients whole on every rank.
  void gather_gradients(Collectives& lane);
  // After an update of the owned parts: the same weights on every rank, bit for bit.
  void gather_values(Collectives& lane);

  // Owned state of all ranks as one flat tensor in rank 0's host memory (undefined elsewhere), a bucket at a time.
  at::Tensor gather_state(Collectives& lane, const at::Tensor& owned) const;
  // The other way: into `owned` of every rank. `parts` are views in parameter order, and rank 0's alone are read.
  void scatter_state(Collectives& lane, const std::vector<NamedTensor>& parts, at::Tensor& owned) const;

  // Frees the gradients and takes masters beside the weights to the host; the model runs forward as before. wake()
  // gives all back: gradients of zeros, masters bit for bit. Both may be called in any order, any number of times.
  void sleep();
  void wake();
  // Views of a whole flat tensor in parameter order, by parameter.
  std::vector<NamedTensor> parts_of(const at::Tensor& flat) const;
  std::vector<NamedTensor> named_gradients() const { return parts_of(gradients_); }

  struct Segment {
    std::string name;
    int64_t begin = 0;
    int64_t size = 0;
    std::vector<int64_t> shape;
    bool weight_decay = true;
  };
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  void cut_buckets(int64_t most_elements);
  int64_t bucket_elements() const { return slice_ * shard_.count; }
  void require_lane(const Collectives& lane) const;
  void gather_buckets(Collectives& lane, const at::Tensor& padded, std::string_view what) const;
  void attach_gradients();
  double owned_gradient_squares() const;
  at::Tensor bucket_of(const at::Tensor& padded, int64_t bucket) const {
    return padded.narrow(0, bucket * bucket_elements(), bucket_elements());
  }

  LaneShard shard_;
  int64_t total_ = 0, slice_ = 0, buckets_ = 0;  // elements, elements of a bucket's slice, number
  std::vector<Segment> segments_;
  std::vector<OwnedPart> owned_parts_;
  int64_t owned_elements_ = 0;
  std::vector<at::Tensor> leaves_;  // the model's parameters
  bool asleep_ = false;
  HostPlace masters_place_;
  int64_t to_reduce_ = 0;  // buckets whose sum has not begun: the first ones
  std::vector<std::unique_ptr<PendingCollective>> reducing_;
  at::Tensor padded_values_, padded_gradients_;
  at::Tensor values_, gradients_, masters_;
};

}  // namespace ringfold
