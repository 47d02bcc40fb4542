// Twin of nccl/: this program has no GPUs, so no device can have been opened.
#include "ringfold/mesh/nccl_lane.h"

namespace ringfold {

LaneComms connect_nccl_lane(const std::shared_ptr<c10d::Store>&, const std::string&, const LanePlace&, at::Device,
                            std::unique_ptr<Collectives>) {
  RINGFOLD_ASSERT(false, "a lane of GPUs in a program without NCCL");
  return {};
}

}  // namespace ringfold
