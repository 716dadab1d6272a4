#include "model/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace pf {
namespace {

struct NumberRow {
  TensorType type;
  uint32_t number;
};
constexpr NumberRow kNumbers[] = {
    {TensorType::kF32, 0},   {TensorType::kF16, 1},   {TensorType::kQ4_0, 2},
    {TensorType::kQ4_1, 3},  {TensorType::kQ5_0, 6},  {TensorType::kQ5_1, 7},
    {TensorType::kQ8_0, 8},  {TensorType::kQ4_K, 12}, {TensorType::kQ5_K, 13},
    {TensorType::kQ6_K, 14}, {TensorType::kI8, 24},   {TensorType::kI32, 26},
    {TensorType::kI64, 27},  {TensorType::kBF16, 30}};

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Bytes of a scalar; 0 for strings and arrays, and for numbers that name no type.
size_t scalar_bytes(GgufType type) {
  constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  auto i = static_cast<size_t>(type);
  return i < std::size(kBytes) ? kBytes[i] : 0;
}

// Requires: a scalar type.
GgufValue scalar(GgufType type, const std::byte* p) {
  switch (type) {
    case GgufType::kU8:
      return uint64_t{load<uint8_t>(p)};
    case GgufType::kI8:
      return int64_t{load<int8_t>(p)};
    case GgufType::kU16:
      return uint64_t{load<uint16_t>(p)};
    case GgufType::kI16:
      return int64_t{load<int16_t>(p)};
    case GgufType::kU32:
      return uint64_t{load<uint32_t>(p)};
    case GgufType::kI32:
      return int64_t{load<int32_t>(p)};
    case GgufType::kU64:
      return load<uint64_t>(p);
    case GgufType::kI64:
      return load<int64_t>(p);
    case GgufType::kF32:
      return double{load<float>(p)};
    case GgufType::kF64:
      return load<double>(p);
    case GgufType::kBool:
      return load<uint8_t>(p) != 0;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  die("no scalar type");
}

std::string quoted(std::string_view name) {
  std::string out = "'";
  for (char c : name.substr(0, 80)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + "'";
}

}  // namespace

uint32_t gguf_number(TensorType type) {
  for (NumberRow row : kNumbers) {
    if (row.type == type) return row.number;
  }
  die("a tensor type without a GGUF number");
}

std::optional<TensorType> tensor_type_of_gguf(uint32_t number) {
  for (NumberRow row : kNumbers) {
    if (row.number == number) return row.type;
  }
  return std::nullopt;
}

// Walks the header once. Every read is bounded by what is left of the file, and every count by the
// least that its items take, so that no number in the file costs more than a few times its size.
class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> bytes) : bytes_(bytes) {}

  Result<GgufFile> run() {
    for (auto pass : {&GgufParser::header, &GgufParser::metadata, &GgufParser::tensor_table,
                      &GgufParser::place_tensors}) {
      if (Status s = (this->*pass)(); !s.ok()) return s;
    }
    return std::move(out_);
  }

 private:
  static constexpr uint64_t kMostAlignment = 1 << 20;
  static constexpr uint64_t kMostTensors = 1 << 17;
  static constexpr uint64_t kMostEntries = 1 << 16;
  static constexpr size_t kMostNameBytes = 255;  // the format allows 64

  size_t left() const { return bytes_.size() - at_; }
  Status ends_in(const std::string& what) {
    return invalid("the file ends inside of " + what + " (truncated?)");
  }

  template <class T>
  bool take(T* v) {
    if (left() < sizeof(T)) return false;
    *v = load<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return true;
  }

  bool take_string(std::string_view* v) {
    uint64_t n = 0;
    if (!take(&n) || n > left()) return false;
    *v = {reinterpret_cast<const char*>(bytes_.data() + at_), n};
    at_ += n;
    return true;
  }

  Status header() {
    std::array<char, 4> magic = {};
    if (!take(&magic) || std::memcmp(magic.data(), "GGUF", 4) != 0) {
      return invalid("not a GGUF file (it does not begin with 'GGUF')");
    }
    if (!take(&out_.version_)) return ends_in("the header");
    if (out_.version_ != 0 && (out_.version_ & 0xffff) == 0) {  // the bytes stand the other way
      return invalid("a big-endian GGUF file is not supported; convert it to little-endian");
    }
    if (out_.version_ != 2 && out_.version_ != 3) {
      return invalid("GGUF version " + std::to_string(out_.version_) +
                     " is not supported (2 and 3 are)");
    }
    if (!take(&n_tensors_) || !take(&n_entries_)) return ends_in("the header");
    if (n_tensors_ > std::min<uint64_t>(left() / 32, kMostTensors)) {
      return invalid("a count of " + std::to_string(n_tensors_) + " tensors does not fit the file");
    }
    if (n_entries_ > std::min<uint64_t>(left() / 13, kMostEntries)) {
      return invalid("a count of " + std::to_string(n_entries_) + " keys does not fit the file");
    }
    return {};
  }

  Status metadata() {
    for (uint64_t i = 0; i < n_entries_; ++i) {
      GgufEntry e;
      uint32_t type = 0;
      if (!take_string(&e.key) || !take(&type)) {
        return ends_in("key " + std::to_string(i) + " of " + std::to_string(n_entries_));
      }
      e.type = static_cast<GgufType>(type);
      size_t begin = at_;
      if (Status s = value(e); !s.ok()) return s.within("key " + quoted(e.key));
      e.bytes = bytes_.subspan(begin, at_ - begin);
      if (!out_.entry_at_.emplace(e.key, out_.entries_.size()).second) {
        return invalid("key " + quoted(e.key) + " stands twice in the file");
      }
      out_.entries_.push_back(e);
    }
    return {};
  }

  Status value(GgufEntry& e) {
    if (e.type == GgufType::kArray) return array(e);
    if (e.type == GgufType::kString) {
      std::string_view text;
      if (!take_string(&text)) return ends_in("its text");
      e.value = text;
      return {};
    }
    size_t n = scalar_bytes(e.type);
    if (n == 0) {
      return invalid("has the unknown type " + std::to_string(static_cast<uint32_t>(e.type)));
    }
    if (left() < n) return ends_in("its value");
    e.value = scalar(e.type, bytes_.data() + at_);
    at_ += n;
    return {};
  }

  Status array(GgufEntry& e) {
    uint32_t type = 0;
    GgufArray a;
    if (!take(&type) || !take(&a.n)) return ends_in("its array");
    a.type = static_cast<GgufType>(type);
    size_t begin = at_;
    if (a.type == GgufType::kString) {
      if (a.n > left() / 8) return ends_in("its array of " + std::to_string(a.n) + " texts");
      std::string_view text;
      for (uint64_t i = 0; i < a.n; ++i) {
        if (!take_string(&text)) return ends_in("text " + std::to_string(i) + " of its array");
      }
    } else {
      size_t n = scalar_bytes(a.type);
      if (n == 0) return invalid("is an array of the unsupported type " + std::to_string(type));
      if (a.n > left() / n) return ends_in("its array of " + std::to_string(a.n) + " values");
      at_ += a.n * n;
    }
    a.bytes = bytes_.subspan(begin, at_ - begin);
    e.value = a;
    return {};
  }

  Status tensor_table() {
    for (uint64_t i = 0; i < n_tensors_; ++i) {
      std::string_view name;
      if (!take_string(&name)) {
        return ends_in("the name of tensor " + std::to_string(i) + " of " +
                       std::to_string(n_tensors_));
      }
      if (name.size() > kMostNameBytes) {
        return invalid("tensor " + quoted(name) + ": its name has " + std::to_string(name.size()) +
                       " bytes");
      }
      if (Status s = tensor_row(name); !s.ok()) return s.within("tensor " + quoted(name));
    }
    return {};
  }

  Status tensor_row(std::string_view name) {
    uint32_t n_dims = 0, type = 0;
    if (!take(&n_dims)) return ends_in("its dimensions");
    if (n_dims < 1 || n_dims > 4) {
      return invalid("has " + std::to_string(n_dims) + " dimensions (1 to 4 are possible)");
    }
    Tensor t;
    t.name = name;
    for (uint32_t d = 0; d < n_dims; ++d) {
      uint64_t n = 0;
      if (!take(&n)) return ends_in("its dimensions");
      if (n == 0 || !std::in_range<int64_t>(n)) {
        return invalid("has a dimension of " + std::to_string(n));
      }
      t.shape.push_back(static_cast<int64_t>(n));
    }
    std::reverse(t.shape.begin(), t.shape.end());  // the file says the innermost first
    uint64_t offset = 0;
    if (!take(&type) || !take(&offset)) return ends_in("its type and offset");
    auto known = tensor_type_of_gguf(type);
    if (!known) {
      return invalid("has the tensor type " + std::to_string(type) +
                     ", which is not supported (F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, "
                     "Q4_K, Q5_K, Q6_K are)");
    }
    t.type = *known;
    if (!out_.tensor_at_.emplace(t.name, out_.tensors_.size()).second) {
      return invalid("stands twice in the file");
    }
    out_.tensors_.push_back(std::move(t));
    offsets_.push_back(offset);
    return {};
  }

  Status place_tensors() {
    uint64_t alignment = 32;
    if (out_.entry("general.alignment") != nullptr) {
      alignment = out_.find<uint64_t>("general.alignment").value_or(0);
      if (!std::has_single_bit(alignment) || alignment > kMostAlignment) {
        return invalid("key 'general.alignment' must be a power of two up to 2^20");
      }
    }
    uint64_t start = (at_ + alignment - 1) / alignment * alignment;
    if (start > bytes_.size()) {
      if (n_tensors_ > 0) return ends_in("the padding before the tensors");
      start = bytes_.size();
    }
    out_.data_start_ = start;
    std::vector<std::pair<uint64_t, size_t>> order;  // offset, index
    for (size_t i = 0; i < out_.tensors_.size(); ++i) {
      if (Status s = place(out_.tensors_[i], offsets_[i], alignment); !s.ok()) {
        return s.within("tensor " + quoted(out_.tensors_[i].name));
      }
      order.emplace_back(offsets_[i], i);
    }
    std::sort(order.begin(), order.end());
    for (size_t k = 1; k < order.size(); ++k) {
      const Tensor& before = out_.tensors_[order[k - 1].second];
      if (order[k - 1].first + before.data.size() > order[k].first) {
        return invalid("tensor " + quoted(out_.tensors_[order[k].second].name) + " overlaps " +
                       quoted(before.name));
      }
    }
    return {};
  }

  Status place(Tensor& t, uint64_t offset, uint64_t alignment) {
    auto bytes = tensor_bytes(t.type, t.shape);
    if (!bytes.ok()) return bytes.status();
    uint64_t room = bytes_.size() - out_.data_start_, n = static_cast<uint64_t>(*bytes);
    if (offset % alignment != 0) {
      return invalid("lies at offset " + std::to_string(offset) + ", no multiple of " +
                     std::to_string(alignment));
    }
    if (offset > room || n > room - offset) {
      return invalid("needs " + std::to_string(n) + " bytes at offset " + std::to_string(offset) +
                     " and the file has " + std::to_string(room) + " (truncated?)");
    }
    t.data = bytes_.subspan(out_.data_start_ + offset, n);
    return {};
  }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  uint64_t n_tensors_ = 0, n_entries_ = 0;
  std::vector<uint64_t> offsets_;
  GgufFile out_;
};

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes) {
  return GgufParser(bytes).run();
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return file.status();
  auto parsed = parse(file->bytes());
  if (!parsed.ok()) return parsed.status().within(path);
  parsed->file_ = file.take();
  return parsed;
}

const GgufEntry* GgufFile::entry(std::string_view key) const {
  auto at = entry_at_.find(key);
  return at == entry_at_.end() ? nullptr : &entries_[at->second];
}

const Tensor* GgufFile::tensor(std::string_view name) const {
  auto at = tensor_at_.find(std::string(name));
  return at == tensor_at_.end() ? nullptr : &tensors_[at->second];
}

std::optional<std::vector<std::string_view>> GgufFile::find_strings(std::string_view key) const {
  auto a = find<GgufArray>(key);
  if (!a || a->type != GgufType::kString) return std::nullopt;
  std::vector<std::string_view> out;
  out.reserve(a->n);
  const std::byte* p = a->bytes.data();
  for (uint64_t i = 0; i < a->n; ++i) {
    auto n = load<uint64_t>(p);
    out.emplace_back(reinterpret_cast<const char*>(p + 8), n);
    p += 8 + n;
  }
  return out;
}

std::optional<std::vector<int64_t>> GgufFile::find_integers(std::string_view key) const {
  auto a = find<GgufArray>(key);
  if (!a || a->type == GgufType::kString) return std::nullopt;
  std::vector<int64_t> out;
  out.reserve(a->n);
  for (uint64_t i = 0; i < a->n; ++i) {
    GgufValue v = scalar(a->type, a->bytes.data() + i * scalar_bytes(a->type));
    auto* u = std::get_if<uint64_t>(&v);
    auto* s = std::get_if<int64_t>(&v);
    if (s == nullptr && (u == nullptr || !std::in_range<int64_t>(*u))) return std::nullopt;
    out.push_back(s != nullptr ? *s : static_cast<int64_t>(*u));
  }
  return out;
}

std::optional<std::vector<float>> GgufFile::find_floats(std::string_view key) const {
  auto a = find<GgufArray>(key);
  if (!a || (a->type != GgufType::kF32 && a->type != GgufType::kF64)) return std::nullopt;
  std::vector<float> out;
  out.reserve(a->n);
  for (uint64_t i = 0; i < a->n; ++i) {
    GgufValue v = scalar(a->type, a->bytes.data() + i * scalar_bytes(a->type));
    out.push_back(static_cast<float>(std::get<double>(v)));
  }
  return out;
}

}  // namespace pf
