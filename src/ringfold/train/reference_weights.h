// The weights of the reference policy, kept on the host: a second checkpoint, or a frozen copy of the start. A forward
// pass runs them in the policy's own model, so that they take no memory on the device beside it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ringfold/models/qwen3/model.h"

namespace ringfold {

class ReferenceWeights {
 public:
  // From a Hugging Face folder. DataError when its shapes or its configuration are not those of the policy.
  static ReferenceWeights load(const ModelConfig& policy, at::ScalarType dtype, const std::string& folder);
  // Of a model as it is now.
  static ReferenceWeights copy_of(const DenseModel& model);

  // Runs `work` while the model has these weights, then gives it its own back, bit for bit, also when `work` throws.
  void run_with(DenseModel& model, const std::function<void()>& work) const;

  // On the host, in the order of the model's parameters.
  const std::vector<at::Tensor>& values() const { return values_; }

 private:
  std::vector<at::Tensor> values_;
};

}  // namespace ringfold
