#include "ringfold/device/release_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <unistd.h>

#include <fstream>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

c10::DeviceAllocator* allocator_of(at::Device device) {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  RINGFOLD_ASSERT(allocator != nullptr, "a GPU has a caching allocator");
  return allocator;
}

}  // namespace

void release_cached_memory(at::Device device) {
  if (!device.is_cpu()) allocator_of(device)->emptyCache();
}

int64_t held_memory_bytes(at::Device device) {
  if (!device.is_cpu()) {
    const auto stats = allocator_of(device)->getDeviceStats(device.index());
    return stats.reserved_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].current;
  }
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace ringfold
