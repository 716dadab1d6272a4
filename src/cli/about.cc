// The commands that speak of the program and its machine: doctor, completion, manual.
#include <cstdio>

#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/doctor.h"

namespace pf {

void declare_doctor(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand(
      "doctor", "Look at this machine: devices, driver, CPU, limits; exit 1 when something is bad");
  command->callback([run] {
    *run = [] {
      std::vector<Finding> findings = examine(read_machine());
      std::fputs(print(findings).c_str(), stdout);
      for (const Finding& f : findings)
        if (f.level == Finding::Level::kBad) return kCheckSaidNo;
      return kOk;
    };
  });
}

void declare_completion(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand(
      "completion", "Print completions for a shell: source <(pilotfish completion bash)");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "The shell")
      ->required()
      ->type_name("{bash,zsh,fish}")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""));
  command->callback([app, shell, run] {
    *run = [app, shell] {
      return std::fputs(completion_script(*app, *shell).c_str(), stdout), kOk;
    };
  });
}

void declare_manual(CLI::App* app, Run* run) {
  CLI::App* command =
      app->add_subcommand("manual", "Print the manual page: pilotfish manual | man -l -");
  command->callback(
      [app, run] { *run = [app] { return std::fputs(manual_page(*app).c_str(), stdout), kOk; }; });
}

void declare_all(CLI::App* app, Run* run) {
  declare_serve(app, run);
  declare_generate(app, run);
  declare_compare(app, run);
  declare_inspect(app, run);
  declare_quantize(app, run);
  declare_health(app, run);
  declare_top(app, run);
  declare_doctor(app, run);
  declare_completion(app, run);
  declare_manual(app, run);
}

}  // namespace pf
