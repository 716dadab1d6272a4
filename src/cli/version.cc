#include "cli/version.h"

namespace pf {

std::string version() { return PF_VERSION; }
std::string commit() { return PF_COMMIT; }
std::string version_text(const std::string& program) {
  return program + " " + version() + " (" + commit() + ")\nbuilt " PF_BUILD;
}

}  // namespace pf
