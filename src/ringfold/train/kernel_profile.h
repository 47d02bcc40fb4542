// Where a GPU's time goes: the kernels between start and stop, summed by name and by class (PyTorch's profiler over
// CUPTI). It slows the host a little, so a profiled step is not a measured one.
#pragma once

#include <string>
#include <vector>

namespace ringfold {

struct KernelTime {
  std::string name;
  double ms = 0;
  int64_t calls = 0;
};

struct KernelProfile {
  double span_ms = 0;               // first kernel's begin to last one's end
  double busy_ms = 0;               // sum of all kernels; with overlapping streams it may exceed the span
  std::vector<KernelTime> classes;  // GEMM, attention, NCCL, copies, others; largest first
  std::vector<KernelTime> kernels;  // largest first
};

void start_kernel_profile();
KernelProfile stop_kernel_profile();
// The classes and the `rows` largest kernels as a table.
std::string to_text(const KernelProfile& profile, size_t rows);

}  // namespace ringfold
