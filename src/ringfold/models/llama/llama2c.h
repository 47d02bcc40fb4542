// llama2.c checkpoints (legacy .bin: seven int32, then fp32 tensors) -> Hugging Face layout.
#pragma once

#include <string>

namespace ringfold {

// Reads `file`, writes config.json and model.safetensors into `folder`. RoPE on neighbouring pairs becomes
// half-rotation by permuting the rows of each head's q and k. DataError names the file and what is wrong with its size.
void convert_llama2c(const std::string& file, const std::string& folder);

}  // namespace ringfold
