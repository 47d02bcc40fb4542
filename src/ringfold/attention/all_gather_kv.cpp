// All-gather-KV: the keys and values of one sample at a time are put together from the gathered shards, up to the last
// chunk this rank's queries can see. Each own chunk sees its own diagonal (causal) and all chunks before it (full).
#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "ringfold/attention/schemes.h"

namespace ringfold::attention_detail {
namespace {

// Where a chunk of a sample lies: group rank and its real rows there.
struct ChunkPlace {
  int rank = 0;
  Rows rows;
};

ChunkPlace place_of_chunk(const SampleShard& sample, int64_t chunk, int size) {
  if (chunk < size) return {static_cast<int>(chunk), first_chunk_rows(sample, static_cast<int>(chunk))};
  const int rank = static_cast<int>(2 * size - 1 - chunk);
  return {rank, second_chunk_rows(sample, rank, size)};
}

// The chunks that this rank's queries of a sample see, in sample order; empty when it owns only pads.
std::vector<ChunkPlace> visible_chunks(const PackLayout& layout, const SampleShard& sample) {
  const int rank = layout.index(), size = layout.size();
  int64_t count = 0;
  if (first_chunk_rows(sample, rank).count > 0) count = PackLayout::first_chunk(rank) + 1;
  if (second_chunk_rows(sample, rank, size).count > 0) count = PackLayout::second_chunk(rank, size) + 1;
  std::vector<ChunkPlace> places;
  for (int64_t chunk = 0; chunk < count; ++chunk) places.push_back(place_of_chunk(sample, chunk, size));
  return places;
}

// Blocks of this rank's queries on the sample's own rows 0 .. L-1.
std::vector<Block> blocks_on_sample(const PackLayout& layout, const SampleShard& sample) {
  const int rank = layout.index(), size = layout.size();
  std::vector<Block> blocks;
  auto add_chunk = [&](int64_t chunk, Rows q) {
    if (q.count == 0) return;
    const int64_t begin = chunk * sample.chunk_tokens;
    blocks.push_back({q, {begin, q.count}, BlockMask::kCausal});
    if (begin > 0) blocks.push_back({q, {0, begin}, BlockMask::kFull});
  };
  add_chunk(PackLayout::first_chunk(rank), first_chunk_rows(sample, rank));
  add_chunk(PackLayout::second_chunk(rank, size), second_chunk_rows(sample, rank, size));
  return blocks;
}

at::Tensor assemble(const std::vector<at::Tensor>& kv_by_rank, const std::vector<ChunkPlace>& places) {
  std::vector<at::Tensor> chunks;
  for (const ChunkPlace& place : places) {
    chunks.push_back(kv_by_rank[place.rank].narrow(1, place.rows.begin, place.rows.count));
  }
  return at::cat(chunks, 1);
}

}  // namespace

AttentionBlock all_gather_kv_forward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                                     const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd) {
  AttentionBlock result = empty_result(q_thd);
  const std::vector<at::Tensor> kv_by_rank =
      all_gather(*context.exchange, context.group, at::stack({k_tgd, v_tgd}), key);
  for (const SampleShard& sample : context.layout.samples()) {
    const std::vector<ChunkPlace> places = visible_chunks(context.layout, sample);
    if (places.empty()) continue;
    const at::Tensor kv_2sgd = assemble(kv_by_rank, places);
    attend(call, blocks_on_sample(context.layout, sample), q_thd, kv_2sgd[0], kv_2sgd[1], result);
  }
  return result;
}

AttentionGrads all_gather_kv_backward(const CpContext& context, const AttentionCall& call, const ExchangeKey& key,
                                      const ForwardState& state) {
  // Gathered again rather than kept: the shards of all layers together would be the memory that CP saves.
  const at::Tensor kv_2tgd = at::stack({state.k_tgd, state.v_tgd});
  const std::vector<at::Tensor> kv_by_rank = all_gather(*context.exchange, context.group, kv_2tgd, key);
  std::vector<at::Tensor> dkv_by_rank;
  const auto sum_options = state.q_thd.options().dtype(sum_type(state.q_thd));
  for (int rank = 0; rank < context.group.size; ++rank) dkv_by_rank.push_back(at::zeros(kv_2tgd.sizes(), sum_options));
  const at::Tensor dq_thd = at::zeros(state.q_thd.sizes(), sum_options);
  for (const SampleShard& sample : context.layout.samples()) {
    const std::vector<ChunkPlace> places = visible_chunks(context.layout, sample);
    if (places.empty()) continue;
    const at::Tensor sample_kv_2sgd = assemble(kv_by_rank, places);
    const at::Tensor sample_dkv_2sgd = at::zeros(sample_kv_2sgd.sizes(), sum_options);
    AttentionGrads grads{dq_thd, sample_dkv_2sgd[0], sample_dkv_2sgd[1]};
    attend_backward(call, blocks_on_sample(context.layout, sample), state, sample_kv_2sgd[0], sample_kv_2sgd[1], grads);
    int64_t begin = 0;
    for (const ChunkPlace& place : places) {
      dkv_by_rank[place.rank]
          .narrow(1, place.rows.begin, place.rows.count)
          .copy_(sample_dkv_2sgd.narrow(1, begin, place.rows.count));
      begin += place.rows.count;
    }
  }
  const at::Tensor home_2tgd = reduce_scatter(*context.exchange, context.group, dkv_by_rank, key);
  return {dq_thd, home_2tgd[0], home_2tgd[1]};
}

}  // namespace ringfold::attention_detail
