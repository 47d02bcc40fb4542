// Work on long flat tensors in pieces, so that temporaries stay small beside the model.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace ringfold {

// body(begin, size) for consecutive pieces; a GPU wants long ones.
template <typename Body>
void for_each_piece(const at::Tensor& flat, Body body) {
  const int64_t piece = flat.is_cpu() ? int64_t{1} << 22 : int64_t{1} << 27;
  for (int64_t begin = 0; begin < flat.numel(); begin += piece) body(begin, std::min(piece, flat.numel() - begin));
}

}  // namespace ringfold
