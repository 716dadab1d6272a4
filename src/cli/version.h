#pragma once

#include <string>

namespace pf {

std::string version();       // 0.1.0
std::string commit();        // as git names it; "unknown" outside of a clone
std::string version_text();  // of --version: version, commit, compiler and flags

}  // namespace pf
