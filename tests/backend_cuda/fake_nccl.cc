// A library with the names of NCCL 2 (nccl.h) that notes what it is asked and exchanges nothing.
#include <cstdio>
#include <string>

namespace {

std::string noted;
int next_status = 0;  // of ncclCommInitAll

void note(const std::string& what) { noted += (noted.empty() ? "" : "; ") + what; }
std::string text(const void* p) {
  char out[32];
  std::snprintf(out, sizeof out, "%lx", reinterpret_cast<unsigned long>(p));
  return out;
}

}  // namespace

extern "C" {

// Of the test: what was asked since the last call, and what the next start comes to.
const char* fake_nccl_noted() {
  static std::string last;
  last = std::move(noted);
  noted.clear();
  return last.c_str();
}
void fake_nccl_start_with(int status) { next_status = status; }

int ncclCommInitAll(void** communicators, int n, const int* devices) {
  std::string what = "init";
  for (int r = 0; r < n; ++r) {
    communicators[r] = reinterpret_cast<void*>(static_cast<unsigned long>(0x100 + devices[r]));
    what += " " + std::to_string(devices[r]);
  }
  note(what);
  return next_status;
}
int ncclCommDestroy(void* communicator) { return note("destroy " + text(communicator)), 0; }
int ncclGroupStart() { return note("start"), 0; }
int ncclGroupEnd() { return note("end"), 0; }
int ncclAllGather(const void* from, void* to, size_t n, int type, void* communicator,
                  void* stream) {
  note("gather " + text(from) + " " + text(to) + " " + std::to_string(n) + " of type " +
       std::to_string(type) + " by " + text(communicator) + " in " + text(stream));
  return 0;
}
const char* ncclGetErrorString(int status) {
  return status == 3 ? "internal error" : "another error";
}

}  // extern "C"
