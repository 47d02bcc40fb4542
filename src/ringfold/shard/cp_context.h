// The context of one micro-step on one rank: passed as an argument through the model down to attention, and kept by the
// autograd nodes so that backward and recompute use the micro-step's own group. Nothing reads it from a global.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "ringfold/mesh/exchange.h"
#include "ringfold/mesh/mesh.h"
#include "ringfold/shard/pack_layout.h"

namespace ringfold {

enum class CpScheme { kRing, kAllGatherKv, kAllToAll };
// Plain ATen operations; ATen's fused operator (on a GPU FlashAttention-2, half precision only); cuDNN's (GPU only).
enum class AttentionKernel { kReference, kFlash, kCudnn };

struct VarlenBlocks;  // kernels/varlen_attention.h
struct WholePack;     // attention/all_to_all.cpp

struct CpContext {
  CpGroup group;
  PackLayout layout;
  Exchange* exchange = nullptr;  // not owned; may be null for a group of one
  CpScheme scheme = CpScheme::kRing;
  AttentionKernel kernel = AttentionKernel::kFlash;
  int64_t step = 0;
  int micro_step = 0;
  // By source rank: the blocks of the GPU kernels, made by the first layer for all others.
  mutable std::map<int, std::shared_ptr<const VarlenBlocks>> varlen_blocks;
  // All-to-all only: the pack in sequence order, made by the first layer too.
  mutable std::shared_ptr<const WholePack> whole_pack;

  CpContext(CpGroup group_in, PackLayout layout_in) : group(group_in), layout(std::move(layout_in)) {}
};

using CpContextPtr = std::shared_ptr<const CpContext>;

}  // namespace ringfold
