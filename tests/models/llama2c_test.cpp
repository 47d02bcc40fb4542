#include "ringfold/models/llama/llama2c.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dist/thread_ranks.h"
#include "models/pack_run.h"
#include "models/test_tools.h"
#include "ringfold/base/error.h"

namespace ringfold {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string converted_folder() {
  return scratch_folder() + "/ringfold_llama2c";
}

// The trained 260 K model of llama2.c and its fp64 reference numbers.
class Stories260K : public ::testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    const char* shared = std::getenv("RINGFOLD_SHARED_DIR");
    const std::string data = std::string(shared ? shared : "") + "/data/tinylm_stories260k";
    if (!std::filesystem::exists(data)) GTEST_SKIP() << "no reference data (RINGFOLD_SHARED_DIR)";
    convert_llama2c(data + "/stories260K.bin", converted_folder());
    config_ = load_model_config(converted_folder());
    golden_ = nlohmann::json::parse(std::ifstream(data + "/golden.json"));
    for (const auto& story : golden_["cases"]) {
      pack_.sequences.push_back(story["ids"].get<std::vector<int64_t>>());
      pack_.weights.emplace_back(pack_.sequences.back().size(), 1.0 / double(pack_.sequences.back().size() - 1));
    }
  }
  DenseModel load(at::ScalarType dtype) const { return DenseModel(config_, dtype, converted_folder()); }
  double wanted_nll(size_t i) const { return golden_["cases"][i]["mean_nll"].get<double>(); }

  ModelConfig config_;
  nlohmann::json golden_;
  Pack pack_;
};

TEST_F(Stories260K, reproduces_the_reference_losses_and_logits) {
  EXPECT_EQ(config_.parameter_count(), 260032);
  const DenseModel model = load(at::kDouble);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < pack_.sequences.size(); ++i) {
    const Pack one{{pack_.sequences[i]}, {pack_.weights[i]}};
    const PackRun run = run_pack(model, one, single_rank_context(one));
    EXPECT_NEAR(run.loss.item<double>(), wanted_nll(i), 1e-12);
    if (i > 0) continue;
    const at::Tensor last = at::matmul(run.hidden_th.slice(0, -1), model.head_weight().t())[0];
    EXPECT_EQ(last.argmax().item<int64_t>(), golden_["cases"][i]["argmax_after_last"].get<int64_t>());
    const auto logits = golden_["cases"][i]["last_logits_0_4"].get<std::vector<double>>();
    for (size_t k = 0; k < logits.size(); ++k) {
      EXPECT_NEAR(last[static_cast<int64_t>(k)].item<double>(), logits[k], 1e-7);
    }
  }
}

TEST_F(Stories260K, fp32_agrees) {
  const DenseModel model = load(at::kFloat);
  const at::NoGradGuard no_grad;
  const double loss = run_pack(model, pack_, single_rank_context(pack_)).loss.item<double>();
  EXPECT_NEAR(loss, wanted_nll(0) + wanted_nll(1), 2e-6);
}

TEST_F(Stories260K, context_parallel_agrees) {
  for (const int size : {2, 4}) {
    run_ranks(size, [&](RankContext& at) {
      const DenseModel model = load(at::kDouble);
      const at::NoGradGuard no_grad;
      const CpGroup group = at.group(size);
      auto context = std::make_shared<CpContext>(group, PackLayout(pack_.lengths(), size, group.index));
      context->exchange = &at.exchange;
      at::Tensor loss = run_pack(model, pack_, context).loss.reshape({1}).clone();
      at.collectives.all_reduce_sum(loss, "loss");
      EXPECT_NEAR(loss.item<double>(), wanted_nll(0) + wanted_nll(1), 1e-10) << size;
    });
  }
}

// A model file of one layer: dim 4, hidden 6, 2 heads, 1 KV head, vocabulary 5, context 3; weights 0, 1, 2 ...
std::string tiny_file(int32_t vocabulary, std::array<int32_t, 7> header = {4, 6, 1, 2, 1, 0, 3}) {
  if (header[5] == 0) header[5] = vocabulary;
  const int floats = 5 * 4 + 4 + 16 + 8 + 8 + 16 + 4 + 3 * 24 + 4 + 3 * 2 + (vocabulary < 0 ? 20 : 0);
  std::string bytes(reinterpret_cast<const char*>(header.data()), sizeof header);
  for (int i = 0; i < floats; ++i) {
    const auto value = static_cast<float>(i);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

std::string conversion_error(const std::string& bytes) {
  const std::string file = scratch_folder() + "/ringfold_llama2c.bin";
  std::ofstream(file, std::ios::binary) << bytes;
  return message_of<DataError>([&] { convert_llama2c(file, converted_folder()); });
}

TEST(Llama2c, an_untied_file_gives_a_head_and_permuted_rows) {
  ASSERT_EQ(conversion_error(tiny_file(-5)), "nothing thrown");
  const ModelConfig config = load_model_config(converted_folder());
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.vocab_size, 5);
  const auto read = read_safetensors_folder(converted_folder());
  EXPECT_EQ(read.at("lm_head.weight").sizes(), (std::vector<int64_t>{5, 4}));
  // Head size 2: the permutation keeps the rows.
  EXPECT_EQ(read.at("model.layers.0.self_attn.q_proj.weight")[0][0].item<float>(), 24);
  EXPECT_EQ(read.at("model.layers.0.mlp.down_proj.weight")[0][0].item<float>(), 24 + 16 + 8 + 8 + 16 + 4 + 24);
  const DenseModel model(config, at::kFloat, converted_folder());
  EXPECT_EQ(model.parameters().back().name, "lm_head.weight");
}

TEST(Llama2c, a_broken_file_is_named_with_its_fault) {
  const auto names = [](const std::string& text) {
    return AllOf(HasSubstr("[convert]"), HasSubstr("ringfold_llama2c.bin"), HasSubstr(text), HasSubstr("Hint:"));
  };
  const std::string good = tiny_file(5);
  EXPECT_EQ(conversion_error(good), "nothing thrown");
  EXPECT_THAT(conversion_error(""), names("file size: got 0 bytes"));
  EXPECT_THAT(conversion_error(good.substr(0, 20)), names("file size: got 20 bytes"));
  EXPECT_THAT(conversion_error(good.substr(0, good.size() - 1)), names("expected " + std::to_string(good.size())));
  EXPECT_THAT(conversion_error(good + "x"), names("file size"));
  EXPECT_THAT(conversion_error(tiny_file(5, {0, 6, 1, 2, 1, 5, 3})), names("header field dim: got 0"));
  EXPECT_THAT(conversion_error(tiny_file(5, {4, 6, -1, 2, 1, 5, 3})), names("header field n_layers: got -1"));
  EXPECT_THAT(conversion_error(tiny_file(5, {4, 2147483647, 1, 2, 1, 5, 3})), names("header field hidden_dim"));
  EXPECT_THAT(conversion_error(tiny_file(5, {4, 6, 1, 2, 1, INT32_MIN, 3})), names("header field vocab_size"));
  EXPECT_THAT(conversion_error(tiny_file(5, {1048576, 1048576, 4096, 2, 2, 1048576, 1048576})), names("file size"));
  EXPECT_THAT(conversion_error(tiny_file(5, {4, 6, 1, 3, 1, 5, 3})), names("n_heads 3"));
  EXPECT_THAT(conversion_error(tiny_file(5, {0x616b3432, 1, 0, 0, 0, 0, 0})), names("versioned format"));
  EXPECT_THAT(message_of<DataError>([] { convert_llama2c("/nowhere/x.bin", converted_folder()); }),
              HasSubstr("/nowhere/x.bin"));
}

}  // namespace
}  // namespace ringfold
