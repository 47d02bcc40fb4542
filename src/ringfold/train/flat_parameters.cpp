#include "ringfold/train/flat_parameters.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "ringfold/base/error.h"
#include "ringfold/base/pow2.h"
#include "ringfold/device/device.h"
#include "ringfold/kernels/fused.h"
#include "ringfold/train/pieces.h"

namespace ringfold {
namespace {

// Elements that a slice is a multiple of: every slice starts on a whole cache line, also in half precision.
constexpr int64_t kSliceAlignment = 64;

}  // namespace

FlatParameters::FlatParameters(std::vector<Parameter>& parameters, LaneShard shard, int64_t most_bucket_elements)
    : shard_(shard) {
  const c10::NoGradGuard no_grad;
  for (const Parameter& parameter : parameters) {
    segments_.push_back(
        {parameter.name, total_, parameter.value.numel(), parameter.value.sizes().vec(), parameter.weight_decay});
    total_ += parameter.value.numel();
  }
  cut_buckets(most_bucket_elements);
  padded_values_ = at::zeros({buckets_ * bucket_elements()}, parameters.front().value.options().requires_grad(false));
  values_ = padded_values_.narrow(0, 0, total_);
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor& value = parameters[i].value;
    const Segment& segment = segments_[i];
    at::Tensor view = values_.narrow(0, segment.begin, segment.size).view(segment.shape);
    view.copy_(value);
    value.set_data(view);
    leaves_.push_back(value);
  }
  attach_gradients();
  const at::ScalarType wide = at::toOpMathType(values_.scalar_type());
  if (wide == values_.scalar_type()) return;
  masters_ = at::empty({owned_elements_}, values_.options().dtype(wide));
  for (const OwnedPart& part : owned_parts_) master_part(part).copy_(values_.narrow(0, part.begin, part.size));
}

// Buckets of equal size, and as little padding as that allows.
void FlatParameters::cut_buckets(int64_t most_elements) {
  const int64_t wanted = ceil_div(total_, most_elements);
  slice_ = round_up(ceil_div(total_, wanted * shard_.count), kSliceAlignment);
  buckets_ = to_reduce_ = ceil_div(total_, bucket_elements());
  for (int64_t bucket = 0; bucket < buckets_; ++bucket) {
    const int64_t begin = bucket * bucket_elements() + shard_.index * slice_;
    const int64_t size = std::min(slice_, total_ - begin);
    if (size <= 0) continue;  // padding
    owned_parts_.push_back({begin, size, owned_elements_});
    owned_elements_ += size;
  }
}

at::Tensor FlatParameters::master_part(const OwnedPart& part) {
  return has_masters() ? masters_.narrow(0, part.owned_begin, part.size) : values_.narrow(0, part.begin, part.size);
}

void FlatParameters::publish_masters() {
  if (!has_masters()) return;
  for (const OwnedPart& part : owned_parts_) values_.narrow(0, part.begin, part.size).copy_(master_part(part));
}

void FlatParameters::attach_gradients() {
  const at::ScalarType wide = at::toOpMathType(values_.scalar_type());
  padded_gradients_ = at::zeros(padded_values_.sizes(), values_.options().dtype(wide));
  gradients_ = padded_gradients_.narrow(0, 0, total_);
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Segment& segment = segments_[i];
    leaves_[i].mutable_grad() = gradients_.narrow(0, segment.begin, segment.size).view(segment.shape);
  }
}

void FlatParameters::zero_gradients() {
  RINGFOLD_ASSERT(!asleep_, "a step needs gradients: wake first");
  padded_gradients_.zero_();
}

void FlatParameters::require_lane(const Collectives& lane) const {
  RINGFOLD_ASSERT(lane.size() == shard_.count && lane.rank().value() == shard_.index,
                  "the parameters are sharded over another lane");
}

void FlatParameters::gather_buckets(Collectives& lane, const at::Tensor& padded, std::string_view what) const {
  require_lane(lane);
  for (int64_t i = 0; i < buckets_; ++i) {
    at::Tensor bucket = bucket_of(padded, i);
    lane.all_gather(bucket, what);
  }
}

int64_t FlatParameters::begin_of(const std::vector<at::Tensor>& parameters) const {
  int64_t begin = total_;
  for (const at::Tensor& parameter : parameters) {
    begin = std::min(begin, parameter.storage_offset() - padded_values_.storage_offset());
  }
  return begin;
}

void FlatParameters::start_reduction(Collectives& lane, int64_t begin) {
  require_lane(lane);
  for (; to_reduce_ > 0 && (to_reduce_ - 1) * bucket_elements() >= begin; --to_reduce_) {
    at::Tensor bucket = bucket_of(padded_gradients_, to_reduce_ - 1);
    reducing_.push_back(lane.start_reduce_scatter_sum(bucket, "gradients"));
  }
}

void FlatParameters::reduce_gradients(Collectives& lane) {
  start_reduction(lane, 0);
  for (const auto& pending : reducing_) pending->wait();
  reducing_.clear();
  to_reduce_ = buckets_;
}

void FlatParameters::gather_gradients(Collectives& lane) {
  gather_buckets(lane, padded_gradients_, "whole gradients");
}

void FlatParameters::gather_values(Collectives& lane) {
  gather_buckets(lane, padded_values_, "weights");
}

double FlatParameters::gradient_norm(Collectives& lane) const {
  double sum = 0;
  // Rank order, so that every rank has the same bits.
  for (const double squares : lane.all_gather_double(owned_gradient_squares(), "gradient norm")) sum += squares;
  return std::sqrt(sum);
}

double FlatParameters::owned_gradient_squares() const {
  const at::Tensor sum = at::zeros({1}, gradients_.options().dtype(at::kDouble));
  const bool fused = gradients_.is_cuda() && gradients_.scalar_type() == at::kFloat;
  for (const OwnedPart& part : owned_parts_) {
    const at::Tensor own = gradients_.narrow(0, part.begin, part.size);
    if (fused) {
      sum.add_(fused::sum_of_squares(own));
      continue;
    }
    for_each_piece(own, [&](int64_t begin, int64_t size) {
      const at::Tensor piece = own.narrow(0, begin, size).to(at::kDouble);
      sum.add_(piece.dot(piece));
    });
  }
  wait_for_stream(sum.device());
  return sum.item<double>();
}

at::Tensor FlatParameters::gather_state(Collectives& lane, const at::Tensor& owned) const {
  at::Tensor whole;
  if (lane.rank() == LaneRank(0)) whole = at::empty({total_}, owned.options().device(at::kCPU));
  at::Tensor bucket = at::zeros({bucket_elements()}, owned.options());
  auto part = owned_parts_.begin();
  for (int64_t begin = 0; begin < total_; begin += bucket_elements()) {
    if (part != owned_parts_.end() && part->begin < begin + bucket_elements()) {
      lane_slice(lane, bucket, shard_.index)
          .narrow(0, 0, part->size)
          .copy_(owned.narrow(0, part->owned_begin, part->size));
      ++part;
    }
    lane.all_gather(bucket, "optimizer state");
    const int64_t size = std::min(bucket_elements(), total_ - begin);
    if (whole.defined()) whole.narrow(0, begin, size).copy_(bucket.narrow(0, 0, size));
  }
  return whole;
}

void FlatParameters::scatter_state(Collectives& lane, const std::vector<NamedTensor>& parts, at::Tensor& owned) const {
  at::Tensor bucket = at::zeros({bucket_elements()}, owned.options());
  size_t next = 0;
  auto part = owned_parts_.begin();
  for (int64_t begin = 0; begin < total_; begin += bucket_elements()) {
    const int64_t end = std::min(total_, begin + bucket_elements());
    for (; next < parts.size() && segments_[next].begin < end; ++next) {
      const Segment& segment = segments_[next];
      const int64_t from = std::max(begin, segment.begin), to = std::min(end, segment.begin + segment.size);
      bucket.narrow(0, from - begin, to - from)
          .copy_(parts[next].value.reshape({-1}).narrow(0, from - segment.begin, to - from));
      if (segment.begin + segment.size > end) break;  // goes on in the next bucket
    }
    at::Tensor bytes = bucket.view(at::kByte);
    lane.broadcast(bytes, LaneRank(0), "optimizer state");
    if (part == owned_parts_.end() || part->begin >= end) continue;
    owned.narrow(0, part->owned_begin, part->size).copy_(bucket.narrow(0, part->begin - begin, part->size));
    ++part;
  }
}

void FlatParameters::sleep() {
  if (asleep_) return;
  asleep_ = true;
  for (at::Tensor& leaf : leaves_) leaf.mutable_grad() = at::Tensor();
  gradients_ = at::Tensor();
  padded_gradients_ = at::Tensor();
  if (has_masters()) masters_place_.put(masters_);
}

void FlatParameters::wake() {
  if (!asleep_) return;
  asleep_ = false;
  const c10::NoGradGuard no_grad;
  attach_gradients();
  if (has_masters()) HostPlace::take(masters_, values_.device());
}

std::vector<NamedTensor> FlatParameters::parts_of(const at::Tensor& flat) const {
  std::vector<NamedTensor> named;
  for (const Segment& segment : segments_) {
    named.push_back({segment.name, flat.narrow(0, segment.begin, segment.size).view(segment.shape)});
  }
  return named;
}

}  // namespace ringfold
