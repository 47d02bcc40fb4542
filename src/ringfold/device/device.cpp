#include "ringfold/device/device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

c10::impl::VirtualGuardImpl guard_of(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

void wait_for(const c10::Event& event) {
  constexpr std::chrono::microseconds kSleep{50};
  while (!event.query()) std::this_thread::sleep_for(kSleep);
}

c10::DeviceAllocator* allocator_of(at::Device device) {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  RINGFOLD_ASSERT(allocator != nullptr, "a GPU has a caching allocator");
  return allocator;
}

}  // namespace

at::Device open_device(const std::string& name, int local_rank) {
  if (name == "cpu") return at::Device(at::kCPU);
  RINGFOLD_ASSERT(name == "cuda", "unknown device " + name);
  if (!at::globalContext().hasCUDA()) {
    throw UsageError(
        "[device] --device cuda: got a program or a host without CUDA, expected a GPU and its driver. Hint: run "
        "ringfold-cuda on a host where nvidia-smi lists a GPU, or use --device cpu");
  }
  at::globalContext().lazyInitDevice(at::kCUDA);
  const int count = guard_of(at::Device(at::kCUDA)).deviceCount();
  if (ranks_share_gpus()) local_rank %= count;
  if (local_rank >= count) {
    throw UsageError(
        fmt::format("[device] --device cuda: got {} GPU(s) for local rank {}, expected one GPU a rank. Hint: start at "
                    "most {} rank(s) on this host, or see CUDA_VISIBLE_DEVICES",
                    count, local_rank, count));
  }
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
  guard_of(device).setDevice(device);
  return device;
}

bool ranks_share_gpus() {
  const char* value = std::getenv("RINGFOLD_SHARE_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

at::Tensor to_device(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  if (host.numel() == 0) return host.to(device);
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

template <typename T>
at::Tensor to_device(const std::vector<T>& values, at::Device device) {
  const auto type = c10::CppTypeToScalarType<T>::value;
  const at::Tensor host =
      at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions(type).pinned_memory(!device.is_cpu()));
  std::copy(values.begin(), values.end(), host.data_ptr<T>());
  return device.is_cpu() ? host : host.to(device, /*non_blocking=*/true);
}
template at::Tensor to_device(const std::vector<int32_t>&, at::Device);
template at::Tensor to_device(const std::vector<int64_t>&, at::Device);
template at::Tensor to_device(const std::vector<double>&, at::Device);

void wait_for_stream(at::Device device) {
  if (device.is_cpu()) return;
  c10::Event event(device.type());
  event.record(guard_of(device).getStream(device));
  wait_for(event);
}

void synchronize(at::Device device) {
  if (!device.is_cpu()) guard_of(device).synchronizeDevice(device.index());
}

DeviceMemory device_memory(at::Device device) {
  if (device.is_cpu()) return {};
  auto* allocator = allocator_of(device);
  const auto stats = allocator->getDeviceStats(device.index());
  const auto whole = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto [free, total] = allocator->getMemoryInfo(device.index());
  return {stats.allocated_bytes[whole].current, stats.allocated_bytes[whole].peak, stats.reserved_bytes[whole].peak,
          static_cast<int64_t>(total), static_cast<int64_t>(free)};
}

void reset_peak_memory(at::Device device) {
  if (!device.is_cpu()) allocator_of(device)->resetPeakStats(device.index());
}

struct StreamTimer::Marks {
  using Clock = std::chrono::steady_clock;
  at::Device device;
  // Begin, end, begin, end ..., with start() before the first pair or not at all. Of the two, what the device needs.
  std::vector<c10::Event> events;
  std::vector<Clock::time_point> times;

  void mark() {
    if (device.is_cpu()) {
      times.push_back(Clock::now());
      return;
    }
    events.emplace_back(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    events.back().record(guard_of(device).getStream(device));
  }
  size_t count() const { return device.is_cpu() ? times.size() : events.size(); }
  double ms_between(size_t a, size_t b) {
    if (!device.is_cpu()) return events[a].elapsedTime(events[b]);
    return std::chrono::duration<double, std::milli>(times[b] - times[a]).count();
  }
  void wait() {
    if (!events.empty()) wait_for(events.back());
  }
  void clear() {
    events.clear();
    times.clear();
  }
};

StreamTimer::StreamTimer(at::Device device) : marks_(new Marks{device, {}, {}}) {}
StreamTimer::~StreamTimer() = default;
StreamTimer::StreamTimer(StreamTimer&&) noexcept = default;
StreamTimer& StreamTimer::operator=(StreamTimer&&) noexcept = default;

void StreamTimer::begin() {
  marks_->mark();
}

void StreamTimer::end() {
  marks_->mark();
}

double StreamTimer::take_ms() {
  marks_->wait();
  double total = 0;
  for (size_t i = 0; i + 1 < marks_->count(); i += 2) total += marks_->ms_between(i, i + 1);
  marks_->clear();
  return total;
}

void StreamTimer::start() {
  marks_->clear();
  marks_->mark();
}

std::vector<StreamTimer::Span> StreamTimer::take_spans() {
  marks_->wait();
  std::vector<Span> spans;
  for (size_t i = 1; i + 1 < marks_->count(); i += 2) {
    spans.push_back({1e3 * marks_->ms_between(0, i), 1e3 * marks_->ms_between(0, i + 1)});
  }
  marks_->clear();
  return spans;
}

}  // namespace ringfold
