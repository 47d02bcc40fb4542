// A checkpoint of bf16 weights and fp32 masters on a GPU: the run that reads it goes on with the same bits.
#include "ringfold/train/checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "ringfold/mesh/single_rank.h"

namespace ringfold {
namespace {

ModelConfig small_config() {
  ModelConfig config;
  config.architecture = Architecture::kQwen3;
  config.vocab_size = 96;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.rms_norm_eps = 1e-6;
  config.rope_theta = 10000;
  config.initializer_range = 0.3;
  config.tie_word_embeddings = true;
  config.qk_norm = true;
  config.json = "{}";
  return config;
}

struct Training {
  explicit Training(uint64_t seed)
      : model(small_config(), at::kBFloat16, seed, at::Device(at::kCUDA, 0)),
        flat(model.parameters()),
        optimizer(flat, {0.9, 0.95, 1e-8, 0.1}) {}
  void step(int64_t number) {
    const at::Tensor ramp = at::arange(flat.gradients().numel(), flat.gradients().options());
    flat.gradients().copy_(at::sin(ramp * 0.37 + static_cast<double>(number)));
    optimizer.step(1e-3, 0.5);
  }

  DenseModel model;
  FlatParameters flat;
  AdamW optimizer;
};

TEST(CheckpointOnGpu, bf16_weights_and_fp32_masters_go_on_bit_by_bit) {
  const std::string folder = ::testing::TempDir() + "ringfold_gpu_checkpoint_" + std::to_string(getpid());
  const LaneComms alone = single_rank_comms();
  for (const bool copied : {false, true}) {
    Training unbroken(5), resumed(99);
    for (int64_t step = 1; step <= 3; ++step) unbroken.step(step);
    CheckpointState state;
    state.step = copied ? 4 : 3;
    const Checkpoint taken =
        capture_checkpoint(*alone.collectives, state, unbroken.model, unbroken.flat, unbroken.optimizer, {}, copied);
    for (const NamedTensor& tensor : taken.optimizer) EXPECT_EQ(tensor.value.is_cpu(), copied) << tensor.name;
    const std::string path = write_checkpoint(folder, taken);
    restore_tensors(*alone.collectives, read_checkpoint(path), resumed.flat, resumed.optimizer);
    for (int64_t step = 4; step <= 5; ++step) {
      EXPECT_TRUE(at::equal(unbroken.flat.values(), resumed.flat.values()));
      EXPECT_TRUE(at::equal(unbroken.flat.masters(), resumed.flat.masters()));
      unbroken.step(step);
      resumed.step(step);
    }
    EXPECT_TRUE(at::equal(unbroken.flat.masters(), resumed.flat.masters()));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ringfold
