#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "model/tensor.h"

namespace pf {

// A safetensors file, read and checked as a whole: u64 length of the header, the header as JSON,
// the data. Tensors must fill the data without holes or overlaps. Types F32, F16, BF16, I64, I32
// and I8. Tensors point into the mapped file, see GgufFile.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  // Reads from bytes that the caller keeps alive.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes);

  const std::vector<Tensor>& tensors() const { return tensors_; }  // in the order of their data
  MappedFile release() { return std::move(file_); }

 private:
  MappedFile file_;
  std::vector<Tensor> tensors_;
};

// The shards that an index (model.safetensors.index.json) names, distinct and sorted, and each
// tensor with its shard. A shard is a plain file name: a path into another folder is refused.
struct ShardIndex {
  std::vector<std::string> files;
  std::vector<std::pair<std::string, std::string>> tensors;  // tensor, file
};
Result<ShardIndex> parse_shard_index(std::string_view json_text);

}  // namespace pf
