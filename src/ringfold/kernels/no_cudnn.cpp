// Twin of cudnn/: no plan can ask for cuDNN, because it says it is not there.
#include "ringfold/base/error.h"
#include "ringfold/kernels/cudnn_attention.h"

namespace ringfold {

bool cudnn_has_attention(at::Device, const HeadShape&) {
  return false;
}

AttentionBlock cudnn_attention_forward(const VarlenBlocks&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       double) {
  RINGFOLD_ASSERT(false, "built without cuDNN");
  return {};
}

AttentionGrads cudnn_attention_backward(const VarlenBlocks&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                        const at::Tensor&, const at::Tensor&, const at::Tensor&, double) {
  RINGFOLD_ASSERT(false, "built without cuDNN");
  return {};
}

}  // namespace ringfold
