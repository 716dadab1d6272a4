#include "cli/load_report.h"

#include <unistd.h>

#include <chrono>

#include "cli/line.h"

namespace pf {
namespace {

double gigabytes(int64_t bytes) { return 1e-9 * static_cast<double>(bytes); }

int64_t percent(int64_t done, int64_t total) { return done * 100 / total; }

}  // namespace

std::string load_line(int64_t done, int64_t total, double seconds) {
  return line("loading: %d %%, %.1f of %.1f GB checked or packed, %.2f GB/s",
              static_cast<int>(percent(done, total)), gigabytes(done), gigabytes(total),
              gigabytes(done) / seconds);
}

void LoadReport::tick(double seconds) {
  const int64_t total = progress_.total(), done = progress_.done();
  if (total == 0 || seconds < next_line_) return;
  if (terminal_) {
    std::fprintf(terminal_, "\r%s\x1b[K", load_line(done, total, seconds).c_str());
    std::fflush(terminal_);
    on_screen_ = true;
    next_line_ = seconds + kBetweenWrites;
    return;
  }
  if (log_)
    log_->info("loading", {{"percent", percent(done, total)},
                           {"gb", gigabytes(done)},
                           {"of_gb", gigabytes(total)},
                           {"gb_per_s", gigabytes(done) / seconds}});
  next_line_ = seconds + kBetweenLines;
}

void LoadReport::end() {
  if (!on_screen_) return;
  std::fputs("\r\x1b[K", terminal_);
  std::fflush(terminal_);
  on_screen_ = false;
}

std::FILE* terminal() { return isatty(STDERR_FILENO) ? stderr : nullptr; }

LoadWatch::LoadWatch(const Progress& progress) : report_(progress, terminal(), nullptr) {
  thread_ = std::thread([this] {
    const auto began = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(100), [this] { return done_; }))
      report_.tick(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  });
}

LoadWatch::~LoadWatch() {
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

}  // namespace pf
