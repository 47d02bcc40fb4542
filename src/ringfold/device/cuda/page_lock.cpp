#include "ringfold/device/page_lock.h"

#include <cuda_runtime_api.h>

namespace ringfold {

bool lock_pages(void* begin, size_t bytes) {
  if (bytes == 0) return false;
  if (cudaHostRegister(begin, bytes, cudaHostRegisterDefault) == cudaSuccess) return true;
  cudaGetLastError();  // else the next launch would be blamed for it
  return false;
}

void unlock_pages(void* begin) {
  cudaHostUnregister(begin);
}

}  // namespace ringfold
