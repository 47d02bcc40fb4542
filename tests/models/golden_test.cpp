// The numbers of transformers (scripts/make_goldens.py) for tiny random models.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "models/pack_run.h"
#include "models/test_tools.h"

namespace ringfold {
namespace {

constexpr int64_t kProjections = 16;
constexpr int64_t kFullGradientNumel = 128;

class Golden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    folder_ = std::string(RINGFOLD_SOURCE_DIR) + "/tests/golden/" + GetParam();
    expected_ = read_safetensors(folder_ + "/expected.safetensors");
    const auto inputs = nlohmann::json::parse(std::ifstream(folder_ + "/inputs.json"));
    pack_.sequences = inputs["sequences"].get<std::vector<std::vector<int64_t>>>();
    pack_.weights = inputs["masks"].get<std::vector<std::vector<double>>>();
  }
  DenseModel load(at::ScalarType dtype) const { return DenseModel(load_model_config(folder_), dtype, folder_); }

  std::string folder_;
  std::map<std::string, at::Tensor> expected_;
  Pack pack_;
};

double norm_of(const at::Tensor& x) {
  return x.to(at::kDouble).norm().item<double>();
}

// Entries +1 and -1; written alike in make_goldens.py.
at::Tensor signs(int64_t count, int64_t projection) {
  const at::Tensor out = at::empty({count}, at::TensorOptions(at::kDouble));
  for (int64_t i = 0; i < count; ++i) {
    uint64_t x = static_cast<uint64_t>(i * kProjections + projection + 1) * 0x9E3779B97F4A7C15ULL;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9ULL;
    out.data_ptr<double>()[i] = (x >> 63) != 0 ? 1.0 : -1.0;
  }
  return out;
}

// Distance of a gradient from the stored summary, relative to the gradient's norm. Root mean square over random sign
// projections of a difference estimates the norm of the difference.
double gradient_distance(const at::Tensor& gradient, const at::Tensor& summary) {
  const at::Tensor flat = gradient.to(at::kDouble).flatten();
  if (flat.numel() <= kFullGradientNumel) return norm_of(flat - summary) / norm_of(summary);
  const double stored_norm = summary[0].item<double>();
  double squares = 0;
  for (int64_t j = 0; j < kProjections; ++j) {
    squares += std::pow(flat.dot(signs(flat.numel(), j)).item<double>() - summary[j + 1].item<double>(), 2);
  }
  return std::max(std::sqrt(squares / kProjections), std::abs(norm_of(flat) - stored_norm)) / stored_norm;
}

TEST_P(Golden, logits_and_log_probs_match) {
  const DenseModel model = load(at::kFloat);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < pack_.sequences.size(); ++i) {
    const Pack one{{pack_.sequences[i]}, {pack_.weights[i]}};
    const at::Tensor hidden_th = run_pack(model, one, single_rank_context(one)).hidden_th;
    const int64_t length = hidden_th.size(0);
    const std::set<int64_t> rows = {0, length / 2, length - 1};
    const at::Tensor logits = at::matmul(
        hidden_th.index_select(0, to_tensor(std::vector<int64_t>(rows.begin(), rows.end()))), model.head_weight().t());
    const at::Tensor& wanted = expected_.at("logits." + std::to_string(i));
    EXPECT_LT((logits - wanted).abs().max().item<double>(), 1e-5 * wanted.abs().max().item<double>()) << length;
  }
  const PackRun packed = run_pack(model, pack_, single_rank_context(pack_));
  EXPECT_LT((packed.log_prob_n - expected_.at("log_probs")).abs().max().item<double>(), 1e-5);
}

TEST_P(Golden, loss_and_gradients_match_packed) {
  DenseModel model = load(at::kFloat);
  const PackRun run = run_pack(model, pack_, single_rank_context(pack_));
  const double wanted = expected_.at("loss").item<double>();
  EXPECT_NEAR(run.loss.item<double>(), wanted, 1e-6 * wanted);
  torch::autograd::backward({run.loss}, {});
  size_t compared = 0;
  for (const Parameter& parameter : model.parameters()) {
    // theory.
    const at::Tensor& summary = expected_.at("gradient." + parameter.name);
    EXPECT_LT(gradient_distance(parameter.value.grad(), summary), 1e-5) << parameter.name;
    ++compared;
  }
  size_t stored = 0;
  for (const auto& [name, value] : expected_) stored += name.starts_with("gradient.");
  EXPECT_EQ(compared, stored);
}

TEST_P(Golden, export_reads_back_with_equal_values) {
  const DenseModel model = load(at::kFloat);
  const std::string folder = scratch_folder() + "/" + GetParam();
  export_hf(model, folder);
  const ModelConfig config = load_model_config(folder);
  EXPECT_EQ(nlohmann::json::parse(config.json)["dtype"], "float32");
  const DenseModel again(config, at::kFloat, folder);
  ASSERT_EQ(again.parameters().size(), model.parameters().size());
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    EXPECT_EQ(again.parameters()[i].name, model.parameters()[i].name);
    EXPECT_TRUE(at::equal(again.parameters()[i].value, model.parameters()[i].value));
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, Golden, ::testing::Values("qwen3_tied", "qwen3_untied", "llama3_bias"),
                         [](const auto& golden) { return std::string(golden.param); });

}  // namespace
}  // namespace ringfold
