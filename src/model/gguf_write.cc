#include "model/gguf_write.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace pf {
namespace {

constexpr size_t kAlignment = 32;

template <class T>
std::string raw(T v) {
  return std::string(reinterpret_cast<const char*>(&v), sizeof v);
}

std::string raw_text(std::string_view text) {
  return raw<uint64_t>(text.size()) + std::string(text);
}

size_t padded(size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

// A file that vanishes again unless keep() renames it.
class NewFile {
 public:
  explicit NewFile(std::string path)
      : path_(std::move(path)), temporary_(path_ + ".part" + std::to_string(getpid())) {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0) note_error();
  }
  ~NewFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, size_t n) {
    const char* p = static_cast<const char*>(data);
    while (status_.ok() && n > 0) {
      ssize_t done = ::write(fd_, p, n);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return note_error();
      p += done;
      n -= static_cast<size_t>(done);
    }
  }

  void pad(size_t n) {
    static const char kZeros[kAlignment] = {};
    write(kZeros, padded(n) - n);
  }

  Status keep() {
    if (status_.ok() && ::fsync(fd_) != 0) note_error();
    if (status_.ok() && ::rename(temporary_.c_str(), path_.c_str()) != 0) note_error();
    if (!status_.ok()) return status_;
    ::close(fd_);
    fd_ = -1;
    return {};
  }

 private:
  void note_error() {
    status_ =
        Status(Code::kFailedPrecondition, path_ + ": cannot be written: " + std::strerror(errno));
  }

  std::string path_, temporary_;
  int fd_ = -1;
  Status status_;
};

}  // namespace

void GgufWriter::put(std::string_view key, GgufType type, std::string bytes) {
  auto at =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  if (at == entries_.end()) at = entries_.insert(at, Entry{std::string(key), type, {}});
  at->type = type;
  at->bytes = std::move(bytes);
}

void GgufWriter::add(std::string_view key, uint32_t value) { put(key, GgufType::kU32, raw(value)); }
void GgufWriter::add(std::string_view key, float value) { put(key, GgufType::kF32, raw(value)); }
void GgufWriter::add(std::string_view key, std::string_view value) {
  put(key, GgufType::kString, raw_text(value));
}
void GgufWriter::add(std::string_view key, std::span<const int32_t> values) {
  std::string bytes = raw(static_cast<uint32_t>(GgufType::kI32)) + raw<uint64_t>(values.size());
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  put(key, GgufType::kArray, std::move(bytes));
}
void GgufWriter::add(const GgufEntry& e) {
  put(e.key, e.type, std::string(reinterpret_cast<const char*>(e.bytes.data()), e.bytes.size()));
}

void GgufWriter::add(std::string name, const Tensor& tensor) {
  tensors_.push_back(tensor);
  tensors_.back().name = std::move(name);
}

std::string GgufWriter::header() const {
  std::string out =
      "GGUF" + raw<uint32_t>(3) + raw<uint64_t>(tensors_.size()) + raw<uint64_t>(entries_.size());
  for (const Entry& e : entries_) {
    out += raw_text(e.key) + raw(static_cast<uint32_t>(e.type)) + e.bytes;
  }
  uint64_t offset = 0;
  for (const Tensor& t : tensors_) {
    out += raw_text(t.name) + raw(static_cast<uint32_t>(t.shape.size()));
    for (size_t i = t.shape.size(); i-- > 0;) out += raw(static_cast<uint64_t>(t.shape[i]));
    out += raw(gguf_number(t.type)) + raw(offset);
    offset += padded(t.data.size());
  }
  return out;
}

Status GgufWriter::write(const std::string& path) const {
  NewFile file(path);
  std::string head = header();
  file.write(head.data(), head.size());
  file.pad(head.size());
  for (const Tensor& t : tensors_) {
    file.write(t.data.data(), t.data.size());
    file.pad(t.data.size());
  }
  return file.keep();
}

}  // namespace pf
