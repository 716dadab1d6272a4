#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "model/json_file.h"

namespace pf {
namespace {

using nlohmann::json;

// A tensor takes about 130 bytes of JSON, so this is room for 30,000; the worst JSON of this size
// is read in below 1 s and 150 MB.
constexpr size_t kMostHeaderBytes = 4 << 20;
constexpr size_t kMostIndexBytes = 4 << 20;
constexpr size_t kMostShards = 4096;
constexpr size_t kMostDimensions = 8;

struct Placed {
  uint64_t begin, end;  // within the data, end exclusive
  Tensor tensor;
};

std::string in_quotes(const std::string& name) { return "'" + shown(name) + "'"; }

std::optional<TensorType> type_of(const std::string& dtype) {
  for (TensorType t : {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kI64,
                       TensorType::kI32, TensorType::kI8}) {
    if (dtype == type_name(t)) return t;
  }
  if (dtype == "BOOL") return TensorType::kI8;  // a byte each, 0 or 1
  return std::nullopt;
}

Status read_offsets(const json& row, uint64_t* begin, uint64_t* end) {
  auto at = row.find("data_offsets");
  int64_t b = 0, e = 0;
  if (at == row.end() || !at->is_array() || at->size() != 2 || !get_integer((*at)[0], &b) ||
      !get_integer((*at)[1], &e) || b < 0 || e < b) {
    return invalid("needs 'data_offsets' of two numbers, begin <= end");
  }
  *begin = static_cast<uint64_t>(b);
  *end = static_cast<uint64_t>(e);
  return {};
}

Status read_tensor(const json& row, std::span<const std::byte> data, Placed* out) {
  if (!row.is_object()) return invalid("is no JSON object");
  auto dtype = row.find("dtype"), shape = row.find("shape");
  if (dtype == row.end() || !dtype->is_string()) return invalid("has no 'dtype'");
  auto type = type_of(dtype->get<std::string>());
  if (!type) {
    return invalid("has the dtype " + in_quotes(dtype->get<std::string>()) +
                   ", which is not supported (F32, F16, BF16, I64, I32, I8, BOOL are)");
  }
  if (shape == row.end() || !shape->is_array() || shape->size() > kMostDimensions) {
    return invalid("needs a 'shape' of at most 8 numbers");
  }
  Tensor& t = out->tensor;
  t.type = *type;
  for (const json& d : *shape) {
    int64_t n = 0;
    if (!get_integer(d, &n)) return invalid("has a shape that is not made of integers");
    t.shape.push_back(n);
  }
  if (t.shape.empty()) t.shape.push_back(1);  // a scalar
  auto bytes = tensor_bytes(t.type, t.shape);
  if (!bytes.ok()) return bytes.status();
  if (Status s = read_offsets(row, &out->begin, &out->end); !s.ok()) return s;
  if (out->end - out->begin != static_cast<uint64_t>(*bytes)) {
    return invalid("needs " + std::to_string(*bytes) + " bytes for its shape, its data_offsets " +
                   "give " + std::to_string(out->end - out->begin));
  }
  if (out->end > data.size()) {
    return invalid("ends at byte " + std::to_string(out->end) + " of the data, which has " +
                   std::to_string(data.size()) + " (truncated?)");
  }
  t.data = data.subspan(out->begin, out->end - out->begin);
  return {};
}

// No two tensors share a byte and no byte is without a tensor: nothing hides in the file.
Status check_layout(const std::vector<Placed>& sorted, size_t data_bytes) {
  uint64_t at = 0;
  for (const Placed& p : sorted) {
    if (p.begin != at) {
      return invalid("tensor " + in_quotes(p.tensor.name) + " begins at byte " +
                     std::to_string(p.begin) + " of the data where " + std::to_string(at) +
                     (p.begin < at ? " is expected: it overlaps its neighbour"
                                   : " is expected: there is a hole before it"));
    }
    at = p.end;
  }
  if (at == data_bytes) return {};
  return invalid("the file has " + std::to_string(data_bytes - at) +
                 " bytes after its last tensor");
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes) {
  uint64_t n = 0;
  if (bytes.size() < 8) return invalid("not a safetensors file (shorter than 8 bytes)");
  std::memcpy(&n, bytes.data(), 8);
  if (n < 2 || n > bytes.size() - 8) {
    return invalid("not a safetensors file: a header of " + std::to_string(n) +
                   " bytes does not fit the file (truncated?)");
  }
  std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, n);
  auto header = parse_json(text, kMostHeaderBytes);
  if (!header.ok()) return header.status().within("the safetensors header");
  if (!header->is_object()) return invalid("the safetensors header is no JSON object");
  std::span<const std::byte> data = bytes.subspan(8 + n);
  std::vector<Placed> placed;
  for (const auto& [name, row] : header->items()) {
    if (name == "__metadata__") continue;
    Placed& p = placed.emplace_back();
    p.tensor.name = name;
    if (Status s = read_tensor(row, data, &p); !s.ok())
      return s.within("tensor " + in_quotes(name));
  }
  std::sort(placed.begin(), placed.end(),
            [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
  if (Status s = check_layout(placed, data.size()); !s.ok()) return s;
  SafetensorsFile out;
  for (Placed& p : placed) out.tensors_.push_back(std::move(p.tensor));
  return out;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return file.status();
  auto parsed = parse(file->bytes());
  if (!parsed.ok()) return parsed.status().within(path);
  parsed->file_ = file.take();
  return parsed;
}

Result<ShardIndex> parse_shard_index(std::string_view json_text) {
  auto index = parse_json(json_text, kMostIndexBytes);
  if (!index.ok()) return index.status();
  if (!index->is_object() || !index->contains("weight_map") ||
      !(*index)["weight_map"].is_object()) {
    return invalid("it has no 'weight_map'");
  }
  ShardIndex out;
  for (const auto& [tensor, file] : (*index)["weight_map"].items()) {
    std::string name = file.is_string() ? file.get<std::string>() : "";
    if (!name.ends_with(".safetensors") || name.find('/') != std::string::npos ||
        name.find('\\') != std::string::npos || name.find('\0') != std::string::npos ||
        name.front() == '.') {
      return invalid("weight_map of tensor " + in_quotes(tensor) + ": " + in_quotes(name) +
                     " is no plain name of a .safetensors file in the same folder");
    }
    out.tensors.emplace_back(tensor, name);
    out.files.push_back(name);
  }
  std::sort(out.files.begin(), out.files.end());
  out.files.erase(std::unique(out.files.begin(), out.files.end()), out.files.end());
  if (out.files.empty()) return invalid("its 'weight_map' is empty");
  if (out.files.size() > kMostShards) return invalid("its 'weight_map' names too many files");
  return out;
}

}  // namespace pf
