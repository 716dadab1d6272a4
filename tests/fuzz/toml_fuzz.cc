#include <sys/mman.h>
#include <unistd.h>

#include "cli/config.h"
#include "fuzz/target.h"

// A file for --config, and what is printed of it, which is one again.
namespace pf {
namespace {

// In memory, with a path.
class ConfigFile {
 public:
  ConfigFile(const void* data, size_t size) : fd_(memfd_create("config", 0)) {
    check(fd_ >= 0 && write(fd_, data, size) == static_cast<ssize_t>(size), "no memory for a file");
  }
  ~ConfigFile() { close(fd_); }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  const int fd_;
};

// As `serve --config FILE`; `printed`, unless null, becomes its --print-config.
Status resolve(const ConfigFile& file, std::string* printed) {
  CLI::App app("", "serve");
  Config config;
  config.declare(&app, Option::Scope::kServe);
  app.parse(std::vector<std::string>{file.path(), "--config"});  // backwards
  const char* const no_environment[] = {nullptr};
  Status s = config.resolve(no_environment);
  if (s.ok() && printed != nullptr) *printed = config.print();
  return s;
}

}  // namespace
}  // namespace pf

const pf::fuzz::Target pf::fuzz::target{"toml", 2000};

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pf;
  std::string printed;
  if (Status s = resolve(ConfigFile(data, size), &printed); !s.ok())
    return fuzz::check_refusal(s), 0;
  check(resolve(ConfigFile(printed.data(), printed.size()), nullptr).ok(),
        "what --print-config prints is no configuration");
  ++fuzz::n_taken;
  return 0;
}
