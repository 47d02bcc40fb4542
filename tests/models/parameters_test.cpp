// Drawing and strict loading of parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "models/pack_run.h"
#include "models/test_tools.h"
#include "ringfold/base/error.h"
#include "ringfold/models/common/rope_table.h"

namespace ringfold {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ModelConfig small_config(bool tied) {
  ModelConfig config;
  config.vocab_size = 50;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.tie_word_embeddings = tied;
  config.qk_norm = true;
  return config;
}

TEST(Parameters, are_drawn_alike_for_every_type_and_depth) {
  const DenseModel fp32(small_config(false), at::kFloat, uint64_t{3});
  const DenseModel fp64(small_config(false), at::kDouble, uint64_t{3});
  ModelConfig deeper_config = small_config(false);
  deeper_config.num_hidden_layers = 4;
  const DenseModel deeper(deeper_config, at::kDouble, uint64_t{3});
  for (size_t i = 0; i < fp64.parameters().size(); ++i) {
    const Parameter& parameter = fp64.parameters()[i];
    EXPECT_TRUE(at::equal(fp32.parameters()[i].value, parameter.value.to(at::kFloat))) << parameter.name;
    const auto same = std::find_if(deeper.parameters().begin(), deeper.parameters().end(),
                                   [&](const Parameter& other) { return other.name == parameter.name; });
    EXPECT_TRUE(at::equal(same->value, parameter.value)) << parameter.name;
  }
  const DenseModel other(small_config(false), at::kDouble, uint64_t{4});
  EXPECT_FALSE(at::equal(other.parameters()[0].value, fp64.parameters()[0].value));
}

TEST(Parameters, have_the_range_order_and_decay_of_their_kind) {
  const DenseModel model(small_config(false), at::kDouble, uint64_t{3});
  EXPECT_EQ(model.parameters().front().name, "model.embed_tokens.weight");
  EXPECT_EQ(model.parameters().back().name, "lm_head.weight");
  int64_t count = 0;
  for (const Parameter& parameter : model.parameters()) {
    const bool is_norm = parameter.name.ends_with("norm.weight");
    EXPECT_TRUE(parameter.value.is_leaf() && parameter.value.requires_grad());
    EXPECT_EQ(parameter.weight_decay, !is_norm) << parameter.name;
    if (is_norm) {
      EXPECT_TRUE(parameter.value.eq(1).all().item<bool>()) << parameter.name;
    } else {
      const double deviation = parameter.value.std().item<double>();
      EXPECT_NEAR(deviation, 0.02, 0.004) << parameter.name;
    }
    count += parameter.value.numel();
  }
  EXPECT_EQ(count, small_config(false).parameter_count());
  ModelConfig biased = small_config(true);
  biased.attention_bias = biased.mlp_bias = true;
  biased.qk_norm = false;
  count = 0;
  const DenseModel with_biases(biased, at::kFloat, uint64_t{3});
  for (const Parameter& parameter : with_biases.parameters()) {
    if (parameter.name.ends_with(".bias")) {
      EXPECT_FALSE(parameter.weight_decay);
      EXPECT_TRUE(parameter.value.eq(0).all().item<bool>());
    }
    count += parameter.value.numel();
  }
  EXPECT_EQ(count, biased.parameter_count());
}

class Loading : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string load(const std::vector<NamedTensor>& tensors, bool tied) const {
    write_safetensors_folder(folder_, tensors);
    return message_of<DataError>([&] { DenseModel(small_config(tied), at::kFloat, folder_); });
  }
  static std::vector<NamedTensor> state(bool tied) {
    return DenseModel(small_config(tied), at::kFloat, uint64_t{3}).state();
  }
  std::string folder_;
};

TEST_F(Loading, lists_missing_extra_and_misshapen_tensors_by_name) {
  auto tensors = state(false);
  std::erase_if(tensors, [](const NamedTensor& t) { return t.name == "model.layers.1.mlp.up_proj.weight"; });
  tensors.push_back({"model.layers.2.mlp.up_proj.weight", at::ones({48, 32})});
  tensors[0].value = at::ones({50, 31});
  EXPECT_THAT(
      load(tensors, false),
      AllOf(HasSubstr("[model]"), HasSubstr(folder_), HasSubstr("1 missing: model.layers.1.mlp.up_proj.weight"),
            HasSubstr("1 extra: model.layers.2.mlp.up_proj.weight"),
            HasSubstr("1 misshapen: model.embed_tokens.weight [50, 31] instead of [50, 32]"), HasSubstr("Hint:")));
  EXPECT_THAT(load({}, false), AllOf(HasSubstr("25 missing"), HasSubstr("and 5 more")));
}

TEST_F(Loading, refuses_weights_that_are_not_numbers_with_a_fraction) {
  auto tensors = state(false);
  tensors[1].value = at::ones({32}, at::kLong);
  EXPECT_THAT(load(tensors, false), HasSubstr("model.layers.0.input_layernorm.weight of type Long"));
}

TEST_F(Loading, a_tied_head_may_be_absent_or_equal_but_not_different) {
  auto tensors = state(true);
  EXPECT_EQ(load(tensors, true), "nothing thrown");
  tensors.push_back({"lm_head.weight", tensors[0].value.clone()});
  EXPECT_EQ(load(tensors, true), "nothing thrown");
  tensors.back().value[3][4] += 1;
  EXPECT_THAT(load(tensors, true), AllOf(HasSubstr("lm_head.weight"), HasSubstr("tie_word_embeddings")));
  EXPECT_THAT(load(state(true), false), HasSubstr("1 missing: lm_head.weight"));
}

TEST_F(Loading, stored_rope_frequencies_are_passed_over) {
  auto tensors = state(false);
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", at::ones({4})});
  EXPECT_EQ(load(tensors, false), "nothing thrown");
}

TEST(RopeTable, scalings_change_the_frequencies_they_should) {
  ModelConfig config = small_config(true);
  config.head_dim = 32;
  const at::Tensor plain = rope_frequencies(config, at::kDouble);
  EXPECT_DOUBLE_EQ(plain[1].item<double>(), std::pow(10000.0, -1.0 / 16));
  config.rope_scaling = {RopeScaling::Kind::kLinear, 4, 1, 4, 64};
  EXPECT_TRUE(at::equal(rope_frequencies(config, at::kDouble), plain / 4));
  config.rope_scaling.kind = RopeScaling::Kind::kLlama3;
  const at::Tensor scaled = rope_frequencies(config, at::kDouble);
  EXPECT_EQ(scaled[0].item<double>(), plain[0].item<double>()) << "wavelength 6.3 is below 64 / 4";
  EXPECT_EQ(scaled[15].item<double>(), plain[15].item<double>() / 4) << "a wavelength beyond 64";
  EXPECT_LT(scaled[3].item<double>(), plain[3].item<double>());
  EXPECT_GT(scaled[3].item<double>(), plain[3].item<double>() / 4);
}

// Case N8: positions restart in each packed sample, and each row reads the table at its own position.
TEST(RopeTable, rows_follow_the_positions_of_the_layout) {
  const ModelConfig config = small_config(true);
  const std::vector<int64_t> lengths = {4, 4};
  const std::vector<int64_t> all = {0, 1, 2, 3};
  const RopeTable whole = rope_table(config, all, at::kDouble);
  for (const int rank : {0, 1}) {
    const PackLayout layout(lengths, 2, rank);
    const std::vector<int64_t> wanted = rank == 0 ? std::vector<int64_t>{0, 3, 0, 3} : std::vector<int64_t>{1, 2, 1, 2};
    ASSERT_EQ(layout.positions(), wanted);
    const RopeTable local = rope_table(config, layout.positions(), at::kDouble);
    EXPECT_TRUE(at::equal(local.cos_td, whole.cos_td.index_select(0, to_tensor(wanted))));
    EXPECT_TRUE(at::equal(local.sin_td, whole.sin_td.index_select(0, to_tensor(wanted))));
  }
}

}  // namespace
}  // namespace ringfold
