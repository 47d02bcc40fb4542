// Memory that a device's allocator keeps for later.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace ringfold {

// Gives unused memory of the caching allocator back, so that others - a sampler, another process - can have it. Nothing
// to do on the CPU.
void release_cached_memory(at::Device device);

// Bytes that this process holds now: reserved by the allocator on a GPU, resident on the CPU.
int64_t held_memory_bytes(at::Device device);

}  // namespace ringfold
