// Truth: maps written down by hand in the form of proc(5); files that the test cuts itself.
#include "base/lost_bytes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/mapped_file.h"

namespace pf {
namespace {

const char* const kMaps =
    "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon\n"
    "00e03000-00e24000 rw-p 00000000 00:00 0           [heap]\n"
    "7f00a000-7f00f000 r--s 00001000 08:02 135522      /models/my model.gguf\n"
    "7f00f000-7f010000 rw-p 00000000 00:00 0\n"
    "35b1a21000-35b1a22000 rw-p 00021000 08:02 135523  /usr/lib64/libc.so (deleted)\n";

// The path, "-" when there is none.
std::string path_at(uintptr_t address, size_t size = 100) {
  int fd = memfd_create("maps", 0);
  EXPECT_EQ(write(fd, kMaps, std::strlen(kMaps)), static_cast<ssize_t>(std::strlen(kMaps)));
  EXPECT_EQ(lseek(fd, 0, SEEK_SET), 0);
  char path[100];
  bool found = find_mapped_path(fd, address, path, size);
  close(fd);
  return found ? path : "-";
}

TEST(LostBytes, APathIsFoundByAnAddress) {
  EXPECT_EQ(path_at(0x400000), "/usr/bin/dbus-daemon");
  EXPECT_EQ(path_at(0x451fff), "/usr/bin/dbus-daemon");
  EXPECT_EQ(path_at(0x452000), "-") << "the end is exclusive";
  EXPECT_EQ(path_at(0xe03000), "-") << "the heap is no file";
  EXPECT_EQ(path_at(0x7f00b123), "/models/my model.gguf");
  EXPECT_EQ(path_at(0x7f00f000), "-") << "nor is memory";
  EXPECT_EQ(path_at(0x35b1a21abc), "/usr/lib64/libc.so (deleted)");
  EXPECT_EQ(path_at(0x7f00b123, 8), "/models") << "cut to its room";
  EXPECT_EQ(path_at(0), "-");
}

[[noreturn]] void read_what_is_gone(const std::string& path) {
  on_lost_bytes([](const char* path) {
    dprintf(STDERR_FILENO, "gone: %s\n", path);
    _exit(42);
  });
  std::ofstream(path) << std::string(3 << 20, 'x');
  Result<MappedFile> file = MappedFile::open(path);
  std::filesystem::resize_file(path, 4096);
  volatile std::byte last = file->bytes().back();
  (void)last;
  _exit(0);
}

TEST(LostBytes, ACutFileIsNamedInsteadOfACore) {
  const std::string path = testing::TempDir() + "lost-" + std::to_string(getpid());
  EXPECT_EXIT(read_what_is_gone(path), testing::ExitedWithCode(42), "gone: " + path + "\n");
  std::filesystem::remove(path);
}

TEST(LostBytes, ASignalOfAnotherKindHasItsWay) {
  EXPECT_EXIT((on_lost_bytes([](const char*) { _exit(42); }), raise(SIGBUS), _exit(0)),
              testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace pf
