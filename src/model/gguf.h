#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "model/tensor.h"

namespace pf {

// Value types of GGUF metadata, by their number in the file.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// An array in the file: n items of one type, their bytes as stored (little-endian; a string is a
// u64 length and its bytes).
struct GgufArray {
  GgufType type = GgufType::kU8;
  uint64_t n = 0;
  std::span<const std::byte> bytes;
};

// Integers are widened; text and arrays point into the file.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

struct GgufEntry {
  std::string_view key;
  GgufType type = GgufType::kU8;
  GgufValue value;
  std::span<const std::byte> bytes;  // the value as stored, to copy it into another file
};

// A GGUF file, version 2 or 3, little-endian, read and checked as a whole: every count, length,
// dimension, offset and overlap. Views and tensors point into the mapped file and live as long as
// this object, or as long as the MappedFile that release() hands over.
class GgufFile {
 public:
  static Result<GgufFile> open(const std::string& path);

  // Reads from bytes that the caller keeps alive.
  static Result<GgufFile> parse(std::span<const std::byte> bytes);

  uint32_t version() const { return version_; }
  uint64_t data_start() const { return data_start_; }
  const std::vector<GgufEntry>& entries() const { return entries_; }  // in file order
  const std::vector<Tensor>& tensors() const { return tensors_; }     // in file order

  const GgufEntry* entry(std::string_view key) const;
  const Tensor* tensor(std::string_view name) const;

  // The value under `key` as T: bool, an integer, float, double, std::string_view or GgufArray.
  // Nothing when the key is absent, of another kind, or an integer that T cannot hold.
  template <class T>
  std::optional<T> find(std::string_view key) const;

  // A string array as views; a numeric array widened. Nothing when absent or of another kind.
  std::optional<std::vector<std::string_view>> find_strings(std::string_view key) const;
  std::optional<std::vector<int64_t>> find_integers(std::string_view key) const;
  std::optional<std::vector<float>> find_floats(std::string_view key) const;

  // Hands over the mapping, for whoever keeps the tensors.
  MappedFile release() { return std::move(file_); }

 private:
  friend class GgufParser;

  MappedFile file_;
  uint32_t version_ = 0;
  uint64_t data_start_ = 0;
  std::vector<GgufEntry> entries_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string_view, size_t> entry_at_;
  std::unordered_map<std::string, size_t> tensor_at_;
};

// The number of a tensor type in a GGUF file, and back; nothing for a type that is not supported.
uint32_t gguf_number(TensorType type);
std::optional<TensorType> tensor_type_of_gguf(uint32_t number);

template <class T>
std::optional<T> GgufFile::find(std::string_view key) const {
  const GgufEntry* e = entry(key);
  if (e == nullptr) return std::nullopt;
  const GgufValue& v = e->value;
  if constexpr (std::same_as<T, bool> || std::same_as<T, std::string_view> ||
                std::same_as<T, GgufArray>) {
    if (const T* p = std::get_if<T>(&v)) return *p;
  } else {
    if constexpr (std::floating_point<T>) {
      if (auto* p = std::get_if<double>(&v)) return static_cast<T>(*p);
      if (auto* p = std::get_if<uint64_t>(&v)) return static_cast<T>(*p);
      if (auto* p = std::get_if<int64_t>(&v)) return static_cast<T>(*p);
    } else {
      auto* u = std::get_if<uint64_t>(&v);
      if (u != nullptr && std::in_range<T>(*u)) return static_cast<T>(*u);
      auto* i = std::get_if<int64_t>(&v);
      if (i != nullptr && std::in_range<T>(*i)) return static_cast<T>(*i);
    }
  }
  return std::nullopt;
}

}  // namespace pf
