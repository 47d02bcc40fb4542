#include "ringfold/train/reference_weights.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

std::vector<at::Tensor> host_copy(const DenseModel& model) {
  std::vector<at::Tensor> values;
  for (const Parameter& parameter : model.parameters()) values.push_back(parameter.value.detach().cpu().clone());
  return values;
}

void put(DenseModel& model, const std::vector<at::Tensor>& values) {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < values.size(); ++i) model.parameters()[i].value.copy_(values[i]);
}

// What the shapes of the weights do not tell.
void require_same_model(const ModelConfig& policy, const ModelConfig& reference, const std::string& folder) {
  const auto require = [&](const char* key, double got, double expected) {
    if (got == expected) return;
    throw DataError(fmt::format(
        "[settings] --ref-load {}: config.json: {}: got {}, expected {} as in the policy. Hint: the reference "
        "is an earlier or a tuned state of the same model",
        folder, key, got, expected));
  };
  require("num_attention_heads", static_cast<double>(reference.num_attention_heads),
          static_cast<double>(policy.num_attention_heads));
  require("num_key_value_heads", static_cast<double>(reference.num_key_value_heads),
          static_cast<double>(policy.num_key_value_heads));
  require("rope_theta", reference.rope_theta, policy.rope_theta);
  require("rms_norm_eps", reference.rms_norm_eps, policy.rms_norm_eps);
}

}  // namespace

ReferenceWeights ReferenceWeights::load(const ModelConfig& policy, at::ScalarType dtype, const std::string& folder) {
  require_same_model(policy, load_model_config(folder), folder);
  ReferenceWeights reference;
  // The policy's config, so that a reference of another shape is refused with the names of its tensors.
  const DenseModel model(policy, dtype, folder);
  for (const Parameter& parameter : model.parameters()) reference.values_.push_back(parameter.value.detach());
  return reference;
}

ReferenceWeights ReferenceWeights::copy_of(const DenseModel& model) {
  ReferenceWeights reference;
  reference.values_ = host_copy(model);
  return reference;
}

void ReferenceWeights::run_with(DenseModel& model, const std::function<void()>& work) const {
  const std::vector<at::Tensor> own = host_copy(model);
  put(model, values_);
  try {
    work();
  } catch (...) {
    put(model, own);
    throw;
  }
  put(model, own);
}

}  // namespace ringfold
