// Where a rank computes: the CPU, or one GPU of its host. Everything here goes through ATen's device-neutral interface,
// so that a program without the CUDA libraries has the same code.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ringfold {

// `name` is cpu or cuda; with cuda the GPU of this rank on its host becomes current. UsageError when this program has
// no CUDA, when there is no GPU, and when the host has fewer GPUs than ranks.
at::Device open_device(const std::string& name, int local_rank);
// RINGFOLD_SHARE_GPU=1: more ranks than GPUs on this host, in turn on each. For tests: right, but slow.
bool ranks_share_gpus();

// A copy on the device that no one on the host waits for: through pinned memory on a GPU. On the CPU: the tensor
// itself.
at::Tensor to_device(const at::Tensor& host, at::Device device);
template <typename T>
at::Tensor to_device(const std::vector<T>& values, at::Device device);  // int32_t, int64_t, double

// Waits for the work so far on the current stream, as the training path does. The host asks now and then and sleeps
// between: while it blocks in the driver, no other thread may get an answer there. Nothing to do on the CPU.
void wait_for_stream(at::Device device);
// Waits for all work on the device; nothing to do on the CPU.
void synchronize(at::Device device);

// Bytes of this process on its GPU; zeros on the CPU.
struct DeviceMemory {
  int64_t allocated_bytes = 0;       // by tensors, now
  int64_t peak_allocated_bytes = 0;  // since the last reset_peak_memory
  int64_t peak_reserved_bytes = 0;
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
};
DeviceMemory device_memory(at::Device device);
void reset_peak_memory(at::Device device);

// Time between marks on the device's current stream (on the CPU: of the clock). A mark costs no wait; reading does.
class StreamTimer {
 public:
  explicit StreamTimer(at::Device device);
  ~StreamTimer();
  StreamTimer(StreamTimer&&) noexcept;
  StreamTimer& operator=(StreamTimer&&) noexcept;
  void begin();
  void end();
  // Sum over all begin/end pairs since the last call; waits for the last mark.
  double take_ms();

  // Instead of a sum: every pair since start(), in us since then; waits for the last mark.
  struct Span {
    double begin_us = 0, end_us = 0;
  };
  void start();
  std::vector<Span> take_spans();

 private:
  struct Marks;
  std::unique_ptr<Marks> marks_;
};

}  // namespace ringfold
