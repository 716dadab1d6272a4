#pragma once

#include <cstdint>
#include <string>

#include "engine/options.h"
#include "server/server.h"

namespace pf {

// Everything that flags, environment and file can set.
struct Settings {
  EngineOptions engine;
  ServerOptions server;
  std::string served_model_name;  // empty: from the model's path
  std::string log_format = "text";
  std::string log_level = "info";
  std::string termination_log = "/dev/termination-log";  // empty: none
};

}  // namespace pf
