// Page-locked host memory. A twin file stands in where the program is built without CUDA.
#pragma once

#include <cstddef>

namespace ringfold {

// False: the system does not let it, and copies take the slower way.
bool lock_pages(void* begin, size_t bytes);
void unlock_pages(void* begin);

}  // namespace ringfold
