#include "base/lost_bytes.h"

#include <fcntl.h>
#include <linux/limits.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

namespace pf {
namespace {

void (*end_of_process)(const char* path) = nullptr;

// Memory that has a path and is no file of a disk: it is lost where there is too little of it.
bool is_memory(const char* path) {
  for (const char* kind : {"/dev/shm/", "/memfd:", "/anon_hugepage"})
    if (std::strncmp(path, kind, std::strlen(kind)) == 0) return true;
  return false;
}

void on_bus_error(int signal_number, siginfo_t* info, void*) {
  char path[PATH_MAX];
  const bool lost = info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR;
  int fd = lost ? open("/proc/self/maps", O_RDONLY | O_CLOEXEC) : -1;
  if (fd >= 0 &&
      find_mapped_path(fd, reinterpret_cast<uintptr_t>(info->si_addr), path, sizeof(path)) &&
      !is_memory(path))
    end_of_process(path);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

// One line after another, a letter at a time:
// BEGIN-END PERMISSIONS OFFSET DEVICE INODE    PATH
class MapsReader {
 public:
  MapsReader(uintptr_t address, char* path, size_t size)
      : address_(address), path_(path), size_(size) {}

  // True: this letter ends the line of the address.
  bool take(char letter) {
    if (letter == '\n') {
      bool here = begin_ <= address_ && address_ < number_;
      if (here) path_[n_] = '\0';
      if (here) return true;
      begin_ = number_ = 0, n_ = 0, field_ = 0, between_ = false;
    } else if (field_ == 5 && (n_ > 0 || letter != ' ')) {  // a path may hold spaces
      if (n_ + 1 < size_) path_[n_++] = letter;
    } else if (letter == ' ') {
      if (!between_) ++field_;
      between_ = true;
    } else {
      between_ = false;
      if (field_ == 0) take_address(letter);
    }
    return false;
  }
  bool has_path() const { return n_ > 0 && path_[0] == '/'; }

 private:
  void take_address(char letter) {
    if (letter == '-')
      begin_ = number_, number_ = 0;
    else
      number_ =
          16 * number_ + static_cast<uintptr_t>(letter <= '9' ? letter - '0' : letter - 'a' + 10);
  }

  const uintptr_t address_;
  char* const path_;
  const size_t size_;
  uintptr_t begin_ = 0, number_ = 0;
  size_t n_ = 0;          // letters of the path
  int field_ = 0;         // 0: the addresses, 5: the path
  bool between_ = false;  // fields
};

}  // namespace

bool find_mapped_path(int fd, uintptr_t address, char* path, size_t size) {
  MapsReader reader(address, path, size);
  char piece[1024];
  for (ssize_t n; (n = read(fd, piece, sizeof(piece))) > 0;)
    for (ssize_t i = 0; i < n; ++i)
      if (reader.take(piece[i])) return reader.has_path();
  return false;
}

void on_lost_bytes(void (*end)(const char* path)) {
  end_of_process = end;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace pf
