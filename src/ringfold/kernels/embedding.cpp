#include "ringfold/kernels/embedding.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace ringfold {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct EmbeddingRows : torch::autograd::Function<EmbeddingRows> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight_vh, const at::Tensor& ids_t) {
    ctx->save_for_backward({ids_t});
    ctx->saved_data["sum"] = weight_vh.grad();
    return at::embedding(weight_vh, ids_t);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor sum_vh = ctx->saved_data["sum"].toTensor();
    sum_vh.index_add_(0, ctx->get_saved_variables()[0], grads[0].to(sum_vh.scalar_type()));
    return {at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor embedding_rows(const at::Tensor& weight_vh, const at::Tensor& ids_t) {
  const at::Tensor& sum_vh = weight_vh.grad();
  if (!sum_vh.defined() || sum_vh.scalar_type() == weight_vh.scalar_type()) return at::embedding(weight_vh, ids_t);
  return EmbeddingRows::apply(weight_vh, ids_t);
}

}  // namespace ringfold
