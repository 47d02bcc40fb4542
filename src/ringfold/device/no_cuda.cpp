// Twin of cuda/: there is no device that could record or copy.
#include "ringfold/base/error.h"
#include "ringfold/device/page_lock.h"
#include "ringfold/device/recorded_work.h"

namespace ringfold {

struct RecordedWork::Graph {};

RecordedWork::RecordedWork(at::Device, const std::function<void()>&) {
  assertion_failed("CUDA", __FILE__, __LINE__, "recorded work in a program without CUDA");
}
RecordedWork::~RecordedWork() = default;
void RecordedWork::replay() {}

bool lock_pages(void*, size_t) {
  return false;
}
void unlock_pages(void*) {}

}  // namespace ringfold
