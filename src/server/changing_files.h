#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "server/log.h"

namespace pf {

// Files that change while the server runs, read again once a period on a thread of its own. They
// are written in any order and not at once, so a text is looked at only when it is the same in two
// looks one after the other. What cannot be used is warned of when it lasts, once; what was in use
// stays, and what comes later is taken up.
class ChangingFiles {
 public:
  struct Group {
    std::vector<std::string> paths;  // files that only make sense together
    std::vector<std::string> texts;  // of them, as they are in use now
    // Takes other texts of the files into use and says so in the log, or says why it cannot.
    std::function<Status(const std::vector<std::string>& texts)> take;
  };
  // `log` must outlive this.
  ChangingFiles(int64_t period_us, Log& log) : period_us_(period_us), log_(log) {}

  // Before start(). A group with something that can be read only once, such as a pipe, is left as
  // it is for ever.
  void add(Group group);
  void start();

  // Looks now and takes what is there, without waiting for a second look; says in the log how many
  // groups were taken up. Any thread.
  void look_now();

 private:
  struct Watched {
    Group group;
    std::optional<std::vector<std::string>> before = std::nullopt;  // nullopt: not all readable
    int n_bad = 0;          // looks in a row that found what cannot be used
    std::string said = {};  // the last warning, so that it is said once
  };
  bool look(Watched* files, bool at_once);
  void warn(Watched* files, const Status& why);
  void run(std::stop_token stop);

  const int64_t period_us_;
  Log& log_;
  std::mutex mutex_;  // guards watched_
  std::vector<Watched> watched_;
  std::jthread thread_;
};

}  // namespace pf
