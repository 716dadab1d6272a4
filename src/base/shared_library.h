#pragma once

#include <dlfcn.h>

#include <span>
#include <string>
#include <utility>

#include "base/status.h"

namespace pf {

// A library that is found at run time, because most machines do without it. Move-only; closed with
// its owner, and what find() gave is gone with it.
class SharedLibrary {
 public:
  SharedLibrary() = default;
  // The first of these names that is there. UNAVAILABLE: what the loader said of the first.
  static Result<SharedLibrary> open(std::span<const char* const> names) {
    std::string why;
    for (const char* name : names) {
      SharedLibrary library;
      library.handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library.handle_ != nullptr) return library;
      if (const char* error = dlerror(); why.empty() && error != nullptr) why = error;
    }
    return Status(Code::kUnavailable, why);
  }
  SharedLibrary(SharedLibrary&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  SharedLibrary& operator=(SharedLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~SharedLibrary() {
    if (handle_ != nullptr) dlclose(handle_);
  }

  // *f: the function of that name. False: there is none.
  template <class F>
  bool find(const char* name, F* f) const {
    *f = reinterpret_cast<F>(dlsym(handle_, name));
    return *f != nullptr;
  }
  // From now on for as long as the process lives.
  void keep_open() { handle_ = nullptr; }

 private:
  void* handle_ = nullptr;
};

}  // namespace pf
