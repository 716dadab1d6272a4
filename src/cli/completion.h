#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"

namespace pf {

// A script that completes `pilotfish` in a shell: "bash", "zsh" or "fish".
std::string completion_script(const CLI::App& app, const std::string& shell);

// The manual page in roff, section 1.
std::string manual_page(const CLI::App& app);

}  // namespace pf
