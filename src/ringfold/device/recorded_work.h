// Device work that is recorded once and then started as a whole: hundreds of small kernels at the cost of one launch (a
// CUDA graph). A twin file stands in where the program is built without CUDA.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace ringfold {

class RecordedWork {
 public:
  // Runs `work` twice, the second time only to record it: what it does must be the same again, wait for nothing on the
  // host, and read what changes from tensors that outlive this object. Tensors that `work` makes and keeps hold the
  // results of the last replay.
  RecordedWork(at::Device device, const std::function<void()>& work);
  ~RecordedWork();
  RecordedWork(const RecordedWork&) = delete;
  RecordedWork& operator=(const RecordedWork&) = delete;

  // Enqueues it on the current stream.
  void replay();

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
};

}  // namespace ringfold
