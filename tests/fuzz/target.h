#pragma once

// A target takes any bytes and comes back: no crash, no sanitizer's complaint, no exception. It
// also ends the process where a promise of what it calls is broken. libFuzzer calls it (preset
// `fuzz`); so does mutate_test.cc, which needs no fuzzer.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace pf::fuzz {

// Each target has one.
struct Target {
  const char* name;  // of its folder in corpus/
  int64_t n_inputs;  // that mutate_test.cc tries
};
extern const Target target;

inline int64_t n_taken = 0;  // inputs that nothing refused: a target counts them
inline std::string last_refusal;

inline std::span<const std::byte> bytes_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}
inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A refusal is one line that can be shown, whatever was refused.
inline void check_refusal(const Status& status) {
  last_refusal = status.message();
  check(!status.message().empty() && status.message().size() < 4096, "a refusal without words");
  for (unsigned char c : status.message())
    check(c >= ' ' && c != 0x7f, "a refusal that is no line of text");
}

// What a file says it holds, it holds: a sanitizer looks at the reads.
inline void check_readable(std::span<const std::byte> bytes) {
  static volatile unsigned sum = 0;
  if (!bytes.empty())
    sum = sum + static_cast<unsigned>(bytes.front()) + static_cast<unsigned>(bytes.back());
}

}  // namespace pf::fuzz
