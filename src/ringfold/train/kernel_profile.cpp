#include "ringfold/train/kernel_profile.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <map>

namespace ringfold {
namespace {

using torch::profiler::impl::ActivityType;

// By what names of kernels have in common today.
const char* class_of(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("nccl")) return "NCCL";
  if (has("flash") || has("fmha") || has("sdpa") || has("cudnn_generated")) return "attention";
  if (has("gemm") || has("nvjet") || has("cutlass") || has("xmma") || has("splitK")) return "GEMM";
  if (has("Memcpy") || has("Memset")) return "copies";
  if (has("ringfold")) return "own kernels";
  return "elementwise and others";
}

std::vector<KernelTime> largest_first(const std::map<std::string, KernelTime>& by_name) {
  std::vector<KernelTime> sorted;
  for (const auto& [name, time] : by_name) sorted.push_back({name, time.ms, time.calls});
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.ms > b.ms; });
  return sorted;
}

}  // namespace

void start_kernel_profile() {
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set<ActivityType> activities{ActivityType::CUDA};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities, {at::RecordScope::FUNCTION});
}

KernelProfile stop_kernel_profile() {
  const auto result = torch::autograd::profiler::disableProfiler();
  KernelProfile profile;
  std::map<std::string, KernelTime> kernels, classes;
  uint64_t first = UINT64_MAX, last = 0;
  for (const auto& event : result->events()) {
    if (event.deviceType() != at::kCUDA) continue;
    const double ms = static_cast<double>(event.durationNs()) / 1e6;
    for (KernelTime* time : {&kernels[event.name()], &classes[class_of(event.name())]}) {
      time->ms += ms;
      ++time->calls;
    }
    profile.busy_ms += ms;
    first = std::min(first, static_cast<uint64_t>(event.startNs()));
    last = std::max(last, static_cast<uint64_t>(event.endNs()));
  }
  if (last > first) profile.span_ms = static_cast<double>(last - first) / 1e6;
  profile.kernels = largest_first(kernels);
  profile.classes = largest_first(classes);
  return profile;
}

std::string to_text(const KernelProfile& profile, size_t rows) {
  std::string text = fmt::format("kernels: {:.1f} ms in a span of {:.1f} ms\n", profile.busy_ms, profile.span_ms);
  const auto add = [&](const KernelTime& time) {
    text += fmt::format("{:>9.2f} ms {:>5.1f} % {:>7} calls  {:.110}\n", time.ms, 100 * time.ms / profile.span_ms,
                        time.calls, time.name);
  };
  for (const KernelTime& time : profile.classes) add(time);
  text += "largest:\n";
  for (size_t i = 0; i < std::min(rows, profile.kernels.size()); ++i) add(profile.kernels[i]);
  return text;
}

}  // namespace ringfold
