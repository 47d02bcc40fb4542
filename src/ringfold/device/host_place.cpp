#include "ringfold/device/host_place.h"

#include <ATen/ATen.h>

#include "ringfold/base/error.h"
#include "ringfold/device/page_lock.h"

namespace ringfold {

HostPlace::~HostPlace() {
  if (locked_) unlock_pages(host_.data_ptr());
}

void HostPlace::put(at::Tensor& x) {
  if (x.is_cpu()) return;
  if (!host_.defined()) {
    host_ = at::empty(x.sizes(), x.options().device(at::kCPU));
    locked_ = lock_pages(host_.data_ptr(), host_.nbytes());
  }
  RINGFOLD_ASSERT(host_.sizes() == x.sizes() && host_.scalar_type() == x.scalar_type(), "a place is for one tensor");
  host_.copy_(x);
  x = host_;
}

void HostPlace::take(at::Tensor& x, at::Device device) {
  x = x.to(device);
}

}  // namespace ringfold
