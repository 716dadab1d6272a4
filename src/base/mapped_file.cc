#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace pf {
namespace {

Status cannot(const std::string& path, const char* what) {
  return Status(Code::kNotFound, path + ": " + what);
}

}  // namespace

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return cannot(path, std::strerror(errno));
  struct stat info = {};
  Status bad;
  void* data = MAP_FAILED;
  if (fstat(fd, &info) != 0) {
    bad = cannot(path, std::strerror(errno));
  } else if (!S_ISREG(info.st_mode)) {
    bad = cannot(path, "not a regular file");
  } else if (info.st_size == 0) {
    bad = invalid(path + ": the file is empty");
  } else {
    data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) bad = cannot(path, std::strerror(errno));
  }
  ::close(fd);
  if (!bad.ok()) return bad;
  MappedFile file;
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = static_cast<size_t>(info.st_size);
  return file;
}

}  // namespace pf
