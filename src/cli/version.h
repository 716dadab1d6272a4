#pragma once

#include <string>

namespace pf {

std::string version();  // 0.1.0
std::string commit();   // as git names it; "unknown" outside of a clone
// Of --version: program, version, commit, compiler and flags.
std::string version_text(const std::string& program = "pilotfish");

}  // namespace pf
