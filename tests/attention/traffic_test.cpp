// What the schemes send: bytes as docs/algorithms_attention.md says, and keys that name the layer and the phase.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "attention/attention_case.h"
#include "dist/thread_ranks.h"

namespace ringfold {
namespace {

// Bytes that a rank sends forward and backward.
struct Sent {
  int64_t forward = 0, backward = 0;
};

Sent documented_bytes(CpScheme scheme, const PackLayout& layout, Heads heads, at::ScalarType dtype) {
  const int64_t c = layout.size(), element = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t kv = 2 * layout.local_tokens() * heads.kv * heads.dim * element;
  if (scheme == CpScheme::kRing) return {(c - 1) * kv, (2 * c - 1) * kv};
  if (scheme == CpScheme::kAllGatherKv) return {(c - 1) * kv, 2 * (c - 1) * kv};
  const int64_t q = layout.local_tokens() * heads.query * heads.dim * element, lse = q / heads.dim;
  const int64_t copied_kv = kv * std::max<int64_t>(1, c / heads.kv);
  return {(c - 1) * (2 * q + copied_kv + lse) / c, (c - 1) * (4 * q + 2 * copied_kv + lse) / c};
}

TEST(AttentionTraffic, sends_the_documented_bytes) {
  const Heads heads{8, 4, 8};
  const AttentionCase data({29, 6, 1}, heads, 1);
  for (int c : {2, 4, 8}) {
    run_ranks(c, [&](RankContext& at) {
      for (Mode mode : kModes) {
        for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
          const CpContextPtr context = make_context(data.lengths, at.group(c), &at.exchange, mode);
          SCOPED_TRACE(describe(data.lengths, context->group, mode));
          const Sent sent = documented_bytes(mode.scheme, context->layout, heads, dtype);
          const at::Tensor q = local_rows(data.q, context->layout, dtype, 0).requires_grad_(true);
          const at::Tensor k = local_rows(data.k, context->layout, dtype, 0);
          at.exchange.take_usage();
          const at::Tensor out = cp_attention(q, k, k, context, 0, kScale);
          EXPECT_EQ(at.exchange.take_usage().sent_bytes, sent.forward);
          out.sum().backward();
          EXPECT_EQ(at.exchange.take_usage().sent_bytes, sent.backward);
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
    for (const Transfer& transfer : transfers) ++transfers_to[transfer.peer];
    return inner_.start(group, transfers, key);
  }
  Usage take_usage() override { return inner_.take_usage(); }

  std::vector<ExchangeKey> keys;
  std::map<int, int> transfers_to;  // by member

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

TEST(AttentionTraffic, all_to_all_is_two_exchanges_of_one_buffer_a_peer) {
  const AttentionCase data({8, 3}, {4, 2, 4}, 3);
  run_ranks(4, [&](RankContext& at) {
    NotingExchange noting(at.exchange);
    const CpContextPtr context =
        make_context(data.lengths, at.group(4), &noting, {CpScheme::kAllToAll, AttentionKernel::kFlash});
    const at::Tensor q = local_rows(data.q, context->layout, at::kDouble, 0).requires_grad_(true);
    const at::Tensor k = local_rows(data.k, context->layout, at::kDouble, 0);
    const at::Tensor out = cp_attention(q, k, k, context, 0, kScale);
    EXPECT_EQ(noting.keys.size(), 2);
    out.sum().backward();
    EXPECT_EQ(noting.keys.size(), 4);
    for (const auto& [peer, transfers] : noting.transfers_to) EXPECT_EQ(transfers, 4) << peer;
  });
}

}  // namespace
}  // namespace ringfold
