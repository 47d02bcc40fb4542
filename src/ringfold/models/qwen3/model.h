// The dense decoder (Qwen3, and Llama as its special case without q/k norm), as single-device code: context parallelism
// enters only through the CpContext argument. Formulas: Qwen3 technical report; layer by layer in
// docs/algorithms_models.md.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ringfold/models/common/config.h"
#include "ringfold/models/common/safetensors.h"
#include "ringfold/shard/cp_context.h"

namespace ringfold {

// kSelective: norms, rotations and the MLP's activation are computed again in the backward (GPU only, fused_layer.h);
// kFull: all of a layer.
enum class Recompute { kNone, kSelective, kFull };

// How a parameter is laid out over ranks. Today every parameter is whole on every rank.
struct Sharding {
  enum class Kind { kReplicated } kind = Kind::kReplicated;
};

struct Parameter {
  std::string name;  // Hugging Face name
  at::Tensor value;  // leaf, requires grad
  Sharding sharding;
  bool weight_decay = true;  // false for norms and biases
};

// The tensors of one layer; those that the configuration does not ask for are undefined.
struct DenseLayer {
  at::Tensor input_norm, q, k, v, o, q_bias, k_bias, v_bias, o_bias, q_norm, k_norm;
  at::Tensor post_norm, gate, up, down, gate_bias, up_bias, down_bias;
};

class DenseModel {
 public:
  // Parameters drawn from N(0, initializer_range) with the seed, norms 1 and biases 0; the same on every rank and for
  // every dtype and device (drawn in fp64 on the CPU). dtype: kFloat, kDouble, or on a GPU kBFloat16.
  DenseModel(const ModelConfig& config, at::ScalarType dtype, uint64_t init_seed, at::Device device = at::kCPU);
  // Strict loading: a missing, extra or misshapen tensor is a DataError that lists the names. Tied heads may be absent.
  DenseModel(const ModelConfig& config, at::ScalarType dtype, const std::string& folder, at::Device device = at::kCPU);

  const ModelConfig& config() const { return config_; }
  // In a fixed order: embedding, layers, final norm, head (absent when tied).
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const at::Tensor& head_weight() const;  // (vocabulary, hidden)
  const at::Tensor& embedding() const { return embedding_; }
  const at::Tensor& final_norm() const { return final_norm_; }

  // Called in the backward when it has added its last to the gradients of a layer's parameters and of all that come
  // after them, but for a tied embedding.
  using GradientsDone = std::function<void(int layer)>;

  // ids (local tokens) in the context's row order -> hidden states after the final norm (local tokens, hidden).
  // Pad rows are zeroed after the embedding, whatever their id.
  at::Tensor forward(const at::Tensor& ids_t, const CpContextPtr& context, Recompute recompute,
                     const GradientsDone& gradients_done = nullptr) const;

  // One layer; `phase` is kRecompute when the backward runs it again. cos, sin: (local tokens, head dim).
  at::Tensor layer_forward(int layer, const at::Tensor& x_th, const at::Tensor& cos_td, const at::Tensor& sin_td,
                           const CpContextPtr& context, Phase phase) const;
  const DenseLayer& layer(int index) const { return layers_[static_cast<size_t>(index)]; }
  // Tensors of one layer that have gradients, in a fixed order.
  std::vector<at::Tensor> layer_parameters(int layer) const;

  // Weights in Hugging Face names and layout, for export.
  std::vector<NamedTensor> state() const;

 private:
  void build(at::TensorOptions options);
  at::Tensor attention_part(int layer, const at::Tensor& x_th, const at::Tensor& cos_td, const at::Tensor& sin_td,
                            const CpContextPtr& context, Phase phase) const;
  at::Tensor mlp_part(const DenseLayer& at, const at::Tensor& x_th) const;

  ModelConfig config_;
  std::vector<Parameter> parameters_;
  std::vector<DenseLayer> layers_;
  at::Tensor embedding_, final_norm_, head_;
};

// The config.json that goes with the model's weights.
std::string exported_config(const DenseModel& model);
// config.json + safetensors into a folder that load_model_config and DenseModel read back.
void export_hf(const DenseModel& model, const std::string& folder);

}  // namespace ringfold
