// Truth: lines written down by hand.
#include "cli/load_report.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>

namespace pf {
namespace {

constexpr int64_t kGb = 1'000'000'000;

// A terminal and a log whose lines can be read.
struct Screen {
  std::FILE* terminal = std::tmpfile();
  std::ostringstream lines;
  Log log{Log::Format::kJson, "info", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)};

  ~Screen() { std::fclose(terminal); }
  std::string written() {
    std::string text(static_cast<size_t>(std::ftell(terminal)), ' ');
    std::rewind(terminal);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), terminal), text.size());
    return text;
  }
};

TEST(LoadReport, ALineSaysPercentBytesAndRate) {
  EXPECT_EQ(load_line(6'800'000'000, 16'100'000'000, 4),
            "loading: 42 %, 6.8 of 16.1 GB checked or packed, 1.70 GB/s");
  EXPECT_EQ(load_line(0, kGb, 1.5), "loading: 0 %, 0.0 of 1.0 GB checked or packed, 0.00 GB/s");
  EXPECT_EQ(load_line(kGb, kGb, 2), "loading: 100 %, 1.0 of 1.0 GB checked or packed, 0.50 GB/s");
}

TEST(LoadReport, ATerminalHasOneLineThatIsTakenAway) {
  Screen screen;
  Progress progress;
  progress.expect(2 * kGb);
  LoadReport report(progress, screen.terminal, &screen.log);
  report.tick(0.99);
  progress.add(kGb / 2);
  report.tick(1.0);
  report.tick(1.05);  // too soon to be read
  progress.add(kGb / 2);
  report.tick(2.0);
  report.end();
  report.end();
  EXPECT_EQ(screen.written(),
            "\rloading: 25 %, 0.5 of 2.0 GB checked or packed, 0.50 GB/s\x1b[K"
            "\rloading: 50 %, 1.0 of 2.0 GB checked or packed, 0.50 GB/s\x1b[K"
            "\r\x1b[K");
  EXPECT_EQ(screen.lines.str(), "");
}

// What follows a load that is refused begins a line of its own: nobody needs to call end().
TEST(LoadReport, ALineGoesAwayWithWhoWroteIt) {
  Screen screen;
  Progress progress;
  progress.expect(kGb);
  {
    LoadReport report(progress, screen.terminal, &screen.log);
    report.tick(3);
  }
  EXPECT_TRUE(screen.written().ends_with("\r\x1b[K"));
}

TEST(LoadReport, WithoutATerminalTheLogHasALineEveryFiveSeconds) {
  Screen screen;
  Progress progress;
  progress.expect(10 * kGb);
  progress.add(3 * kGb);
  {
    LoadReport report(progress, nullptr, &screen.log);
    for (double s : {0.5, 1.5, 2.0, 6.4}) report.tick(s);
    progress.add(6 * kGb);
    report.tick(6.5);
  }
  std::istringstream lines(screen.lines.str());
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);)
    found.push_back(line.substr(line.find("\"event\"")));
  EXPECT_EQ(found, (std::vector<std::string>{
                       R"("event":"loading","percent":30,"gb":3,"of_gb":10,"gb_per_s":2})",
                       R"("event":"loading","percent":90,"gb":9,"of_gb":10,"gb_per_s":1.38462})"}));
}

TEST(LoadReport, SaysNothingOfWhatIsQuickOrNotKnownYet) {
  Screen screen;
  Progress progress;
  LoadReport on_terminal(progress, screen.terminal, &screen.log);
  on_terminal.tick(7);  // files are opened: nobody knows yet how much there is
  progress.expect(kGb);
  progress.add(kGb);
  LoadReport quick(progress, screen.terminal, &screen.log), in_log(progress, nullptr, &screen.log);
  quick.tick(0.9);
  in_log.tick(0.9);
  on_terminal.end();
  quick.end();
  EXPECT_EQ(screen.written(), "");
  EXPECT_EQ(screen.lines.str(), "");
}

TEST(LoadWatch, EndsWithTheLoadHoweverShort) {
  Progress progress;
  for (int i = 0; i < 3; ++i) LoadWatch watch(progress);  // a thread that is not waited for ends us
}

}  // namespace
}  // namespace pf
