#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace pf {
namespace {

struct Descriptor {
  explicit Descriptor(int descriptor) : fd(descriptor) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int fd;
};

Status cannot(const std::string& path, const std::string& what) {
  return Status(Code::kNotFound, path + ": " + what);
}

Status too_large(const std::string& path, size_t most_bytes) {
  return invalid(path + ": more than " + std::to_string(most_bytes) + " bytes, which is the limit");
}

}  // namespace

Result<std::string> read_whole_file(const std::string& path, size_t most_bytes) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  if (file.fd < 0 || fstat(file.fd, &info) != 0) return cannot(path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return cannot(path, "is a folder; a file is needed");
  if (S_ISREG(info.st_mode) && static_cast<size_t>(info.st_size) > most_bytes)
    return too_large(path, most_bytes);
  std::string text;
  constexpr size_t kPiece = size_t{64} << 10;
  while (true) {
    size_t n = text.size();
    text.resize(n + kPiece);
    ssize_t got = ::read(file.fd, text.data() + n, kPiece);
    text.resize(n + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot(path, std::strerror(errno));
    if (got == 0) return text;
    if (text.size() > most_bytes) return too_large(path, most_bytes);
  }
}

Status check_can_write(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return cannot(path, "is a folder; name a file in it");
    return access(path.c_str(), W_OK) == 0
               ? Status()
               : cannot(path, std::string("cannot be written: ") + std::strerror(errno));
  }
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (stat(folder.c_str(), &info) != 0)
    return cannot(path, "cannot be written: " + folder.string() + ": " + std::strerror(errno));
  if (S_ISDIR(info.st_mode) && access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return cannot(path, "cannot be written into " + folder.string());
}

}  // namespace pf
