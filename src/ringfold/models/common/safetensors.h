// The safetensors format (one file, or sharded with model.safetensors.index.json). Every length in a file is checked
// before it is used; a broken file is a DataError that names the file and the tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

namespace ringfold {

struct NamedTensor {
  std::string name;
  at::Tensor value;
};

// Reads every tensor of one .safetensors file. Types: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL.
std::map<std::string, at::Tensor> read_safetensors(const std::string& file);
// Reads a Hugging Face folder: model.safetensors, or every shard of model.safetensors.index.json.
std::map<std::string, at::Tensor> read_safetensors_folder(const std::string& folder);
// Writes aside and renames; throws RunError naming the file and the reason (disk full, no permission).
void write_safetensors(const std::string& file, const std::vector<NamedTensor>& tensors);
// Writes model.safetensors, or shards of at most max_shard_bytes with an index.
void write_safetensors_folder(const std::string& folder, const std::vector<NamedTensor>& tensors,
                              int64_t max_shard_bytes = int64_t{5} << 30);

}  // namespace ringfold
