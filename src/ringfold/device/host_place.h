// A place in host memory for a GPU tensor while others need the GPU's memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace ringfold {

// Taken at the first put() and kept for the next ones, with its pages locked where the system lets it: copies then run
// at the speed of the bus, several times that of other memory.
class HostPlace {
 public:
  HostPlace() = default;
  ~HostPlace();
  HostPlace(const HostPlace&) = delete;
  HostPlace& operator=(const HostPlace&) = delete;

  // Makes `x` its copy in here, bit for bit, and frees it on the GPU. Nothing to do for a CPU tensor. Always of one
  // size and type.
  void put(at::Tensor& x);
  // Makes `x` a tensor on `device` again.
  static void take(at::Tensor& x, at::Device device);

 private:
  at::Tensor host_;
  bool locked_ = false;
};

}  // namespace ringfold
