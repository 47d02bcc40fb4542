#include "ringfold/device/recorded_work.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include "ringfold/device/device.h"

namespace ringfold {

struct RecordedWork::Graph {
  at::cuda::CUDAGraph graph;
};

RecordedWork::RecordedWork(at::Device device, const std::function<void()>& work) : graph_(new Graph) {
  synchronize(device);
  {
    // The default stream cannot be recorded. Always the same other one: libraries keep a workspace for each.
    static const auto side = at::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
    const c10::cuda::CUDAStreamGuard guard(side);
    work();  // libraries load their kernels and take their workspaces now
    synchronize(device);
    // Of this thread alone: others, such as those that watch communicators, may go on asking the driver.
    graph_->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    work();
    graph_->graph.capture_end();
  }
  synchronize(device);
}

RecordedWork::~RecordedWork() = default;

void RecordedWork::replay() {
  graph_->graph.replay();
}

}  // namespace ringfold
