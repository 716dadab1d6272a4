#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/progress.h"
#include "base/status.h"
#include "server/engine_port.h"
#include "server/served_model.h"

namespace pf {

struct Settings;

// Exit codes of the program.
inline constexpr int kOk = 0, kCheckSaidNo = 1, kUsage = 2, kFault = 70;

// Each declares a subcommand; its callback leaves what is to be done in *run. run returns the exit
// code.
using Run = std::function<int()>;
void declare_serve(CLI::App* app, Run* run);
void declare_generate(CLI::App* app, Run* run);
void declare_compare(CLI::App* app, Run* run);
void declare_plan(CLI::App* app, Run* run);
void declare_inspect(CLI::App* app, Run* run);
void declare_quantize(CLI::App* app, Run* run);
void declare_health(CLI::App* app, Run* run);
void declare_top(CLI::App* app, Run* run);
void declare_doctor(CLI::App* app, Run* run);
void declare_completion(CLI::App* app, Run* run);
void declare_manual(CLI::App* app, Run* run);
void declare_all(CLI::App* app, Run* run);

// Says the refusal in one line on stderr; the exit code for it.
int fail(const Status& status);

// A loaded engine, not yet started, and the model as requests see it.
struct Loaded {
  std::unique_ptr<Engine> engine;
  ServedModel model;
};
// `progress`: as load_engine's (engine/load.h).
Result<Loaded> load_engine_and_text(const Settings& settings, const Clock& clock,
                                    Progress* progress);

}  // namespace pf
