#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/gguf.h"
#include "model/tensor.h"

namespace pf {

// Collects metadata and tensors and writes them as one GGUF file, version 3, alignment 32.
// Tensors are borrowed until write() has returned.
class GgufWriter {
 public:
  // A key that is already there is replaced.
  void add(std::string_view key, uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, std::span<const int32_t> values);
  // A value as another file stores it.
  void add(const GgufEntry& entry);

  void add(std::string name, const Tensor& tensor);

  // Writes to a new file beside `path` and renames it, so that `path` is whole or untouched.
  Status write(const std::string& path) const;

 private:
  struct Entry {
    std::string key;
    GgufType type;
    std::string bytes;
  };
  void put(std::string_view key, GgufType type, std::string bytes);
  std::string header() const;

  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
};

}  // namespace pf
