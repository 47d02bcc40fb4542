// What the schemes send: bytes as docs/algorithms_attention.md says, and keys that name the layer and the phase.
#include <gtest/gtest.h>

#include "attention/attention_case.h"
#include "dist/thread_ranks.h"

namespace ringfold {
namespace {

TEST(AttentionTraffic, sends_the_documented_bytes) {
  const AttentionCase data({29, 6, 1}, {4, 2, 8}, 1);
  for (int c : {2, 4, 8}) {
    run_ranks(c, [&](RankContext& at) {
      for (Mode mode : kModes) {
        for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
          const CpContextPtr context = make_context(data.lengths, at.group(c), &at.exchange, mode);
          SCOPED_TRACE(describe(data.lengths, context->group, mode));
          const int64_t kv_bytes =
              2 * context->layout.local_tokens() * 2 * 8 * static_cast<int64_t>(c10::elementSize(dtype));
          const at::Tensor q = local_rows(data.q, context->layout, dtype, 0).requires_grad_(true);
          const at::Tensor k = local_rows(data.k, context->layout, dtype, 0);
          at.exchange.take_usage();
          const at::Tensor out = cp_attention(q, k, k, context, 0, kScale);
          EXPECT_EQ(at.exchange.take_usage().sent_bytes, (c - 1) * kv_bytes);
          out.sum().backward();
          const int64_t backward_hops = mode.scheme == CpScheme::kRing ? 2 * c - 1 : 2 * (c - 1);
          EXPECT_EQ(at.exchange.take_usage().sent_bytes, backward_hops * kv_bytes);
        }
      }
    });
  }
}

// Notes the key of each exchange and hands it on.
class NotingExchange : public Exchange {
 public:
  explicit NotingExchange(Exchange& inner) : inner_(inner) {}
  std::unique_ptr<PendingExchange> start(const CpGroup& group, std::span<const Transfer> transfers,
                                         const ExchangeKey& key) override {
    keys.push_back(key);
    return inner_.start(group, transfers, key);
  }
  Usage take_usage() override { return inner_.take_usage(); }

  std::vector<ExchangeKey> keys;

 private:
  Exchange& inner_;
};

TEST(AttentionTraffic, names_step_layer_and_phase) {
  const AttentionCase data({8}, {2, 2, 4}, 2);
  run_ranks(2, [&](RankContext& at) {
    for (Mode mode : kModes) {
      NotingExchange noting(at.exchange);
      auto context = std::make_shared<CpContext>(*make_context(data.lengths, at.group(2), &noting, mode));
      context->step = 41;
      context->micro_step = 6;
      const at::Tensor q = local_rows(data.q, context->layout, at::kDouble, 0).requires_grad_(true);
      auto expect_keys = [&](Phase phase) {
        EXPECT_FALSE(noting.keys.empty());
        for (const ExchangeKey& key : noting.keys) {
          EXPECT_EQ(key.step, 41);
          EXPECT_EQ(key.micro_step, 6);
          EXPECT_EQ(key.layer, 9);
          EXPECT_EQ(key.phase, phase);
        }
        noting.keys.clear();
      };
      const at::Tensor out = cp_attention(q, q, q, context, 9, kScale, Phase::kRecompute);
      expect_keys(Phase::kRecompute);
      out.sum().backward();
      expect_keys(Phase::kBackward);
      cp_attention(q, q, q, context, 9, kScale);
      expect_keys(Phase::kForward);
    }
  });
}

}  // namespace
}  // namespace ringfold
