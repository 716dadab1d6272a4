#pragma once

#include <string>

#include "proto/pilotfish/v1/admin.pb.h"

namespace pf {

// One screen of `top`.
std::string top_screen(const pilotfish::v1::ServerInfo& info);

}  // namespace pf
