#include "server/changing_files.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>

#include "base/files.h"
#include "base/thread_name.h"

namespace pf {
namespace {

constexpr int kLooksUntilWarning = 3;  // a renewal that takes this long is worth a word

// Whatever else stands there may block whoever opens it.
Status check_regular(const std::string& path) {
  std::error_code error;
  std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return {};
  return invalid(path + ": is no regular file");
}

Result<std::vector<std::string>> read_all(const std::vector<std::string>& paths) {
  std::vector<std::string> texts;
  for (const std::string& path : paths) {
    if (Status s = check_regular(path); !s.ok()) return s;
    Result<std::string> text = read_whole_file(path, kMaxConfigurationBytes);
    if (!text.ok()) return text.status();
    texts.push_back(text.take());
  }
  return texts;
}

}  // namespace

void ChangingFiles::add(Group group) {
  const bool lasting = std::all_of(group.paths.begin(), group.paths.end(), [](auto& path) {
    return std::filesystem::is_regular_file(path);
  });
  if (lasting) watched_.push_back({.group = std::move(group)});
}

void ChangingFiles::start() {
  if (watched_.empty()) return;
  thread_ = std::jthread([this](std::stop_token stop) { run(stop); });
}

void ChangingFiles::run(std::stop_token stop) {
  name_this_thread("pf-files");
  std::mutex mutex;
  std::condition_variable_any nap;
  while (true) {
    std::unique_lock lock(mutex);
    nap.wait_for(lock, stop, std::chrono::microseconds(period_us_), [] { return false; });
    if (stop.stop_requested()) return;
    std::lock_guard watched(mutex_);
    for (Watched& files : watched_) look(&files, false);
  }
}

void ChangingFiles::look_now() {
  int64_t n_taken = 0;
  {
    std::lock_guard lock(mutex_);
    for (Watched& files : watched_) n_taken += look(&files, true) ? 1 : 0;
  }
  log_.info("files read again", {{"taken_up", n_taken}});
}

// True: other texts were taken into use.
bool ChangingFiles::look(Watched* files, bool at_once) {
  Group& group = files->group;
  Result<std::vector<std::string>> texts = read_all(group.paths);
  if (texts.ok() && *texts == group.texts) {
    files->before.reset();
    files->n_bad = 0;
    files->said.clear();
    return false;
  }
  bool settled = at_once || !texts.ok() || files->before == *texts;
  files->before = texts.ok() ? std::optional(*texts) : std::nullopt;
  if (!settled) return false;
  if (at_once) files->said.clear();  // whoever asks is told again
  Status taken = texts.ok() ? group.take(*texts) : texts.status();
  if (!taken.ok()) {
    if (++files->n_bad >= kLooksUntilWarning || at_once) warn(files, taken);
    return false;
  }
  group.texts = texts.take();
  files->n_bad = 0;
  files->said.clear();
  return true;
}

void ChangingFiles::warn(Watched* files, const Status& why) {
  if (files->said == why.message()) return;
  files->said = why.message();
  log_.warn("a changed file is not taken up, the old one stays in use", {{"why", files->said}});
}

}  // namespace pf
