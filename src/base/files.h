#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace pf {

// Files that a person names. Errors are "PATH: what is wrong with it"; the caller adds the flag.

// Of files that configure: TOML, tokens, certificates.
inline constexpr size_t kMaxConfigurationBytes = size_t{1} << 20;

// All bytes of a file or a pipe. Refuses a folder, which would read as an empty file, and more than
// `most_bytes`, before it has read many more than that.
Result<std::string> read_whole_file(const std::string& path, size_t most_bytes);

// Whether a file could be written there, for those who have long work in front of it. Makes and
// changes nothing.
Status check_can_write(const std::string& path);

}  // namespace pf
