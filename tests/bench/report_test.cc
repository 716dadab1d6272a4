// Truth: the contract of the JSON ("goals": [{"id", "name", "value", "goal", "pass"}]), by hand.
#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

namespace pf {
namespace {

TEST(Goal, AtLeastAtMostAndNoNumber) {
  EXPECT_TRUE((Goal{"a", "", 0.93, 0.93, true}.pass()));
  EXPECT_FALSE((Goal{"a", "", 0.92, 0.93, true}.pass()));
  EXPECT_TRUE((Goal{"a", "", 1.05, 1.05, false}.pass()));
  EXPECT_FALSE((Goal{"a", "", 1.06, 1.05, false}.pass()));
  EXPECT_FALSE((Goal{"a", "", NAN, 1, true}.pass()));
  EXPECT_FALSE((Goal{"a", "", NAN, 1, false}.pass()));
}

TEST(Report, GoalsAsJson) {
  Report report("kernels");
  report.head()["rounds"] = 30;
  report.add("probes", {{"threads", 1}, {"read", 25.5}});
  report.add("probes", {{"threads", 2}, {"read", 50.0}});
  report.add(Goal{"C1", "decode", 0.95, 0.93, true});
  report.add(Goal{"C3", "verify", NAN, 1.05, false});
  EXPECT_EQ(report.json(), Json::parse(R"({
    "command": "kernels", "rounds": 30,
    "sections": {"probes": [{"threads": 1, "read": 25.5}, {"threads": 2, "read": 50.0}]},
    "goals": [
      {"id": "C1", "name": "decode", "value": 0.95, "goal": 0.93, "at_least": true, "pass": true},
      {"id": "C3", "name": "verify", "value": null, "goal": 1.05, "at_least": false, "pass": false}
    ]})"));
}

TEST(Report, WithoutAnythingIsStillComplete) {
  EXPECT_EQ(Report("decode").json(),
            Json::parse(R"({"command": "decode", "sections": {}, "goals": []})"));
}

TEST(Report, KeptFiguresNameTheirPairs) {
  EXPECT_EQ(to_json(Kept{{0.5, 0.4, 0.75, 9}, 2}),
            Json::parse(R"({"median": 0.5, "q1": 0.4, "q3": 0.75, "pairs": 9, "dropped": 2})"));
  EXPECT_EQ(to_json(Kept{{}, 3}),
            Json::parse(R"({"median": null, "q1": null, "q3": null, "pairs": 0, "dropped": 3})"));
}

TEST(Report, TableShowsSectionsAndMarks) {
  Report report("kernels");
  report.add("probes", {{"what", "read"}, {"GB/s", 25.5}});
  report.add("probes", {{"what", "barrier"}, {"GB/s", nullptr}});
  report.add(Goal{"C1", "decode", 0.95, 0.93, true});
  report.add(Goal{"C5", "unmeasured", NAN, 0.96, true});
  EXPECT_EQ(report.table(),
            "command: kernels\n"
            "\nprobes\n"
            "what     GB/s\n"
            "read     25.5\n"
            "barrier     -\n"
            "\ngoals\n"
            "goal  value  asked    met  what\n"
            "C1     0.95  >= 0.93  yes  decode\n"
            "C5        -  >= 0.96    -  unmeasured\n");
}

TEST(Report, AFileThatCannotBeWrittenIsNamed) {
  Status s = Report("kernels").write("no/such/folder/x.json");
  EXPECT_FALSE(s.ok());
  EXPECT_THAT(s.message(), testing::HasSubstr("no/such/folder/x.json"));
  EXPECT_TRUE(Report("kernels").write("").ok());
}

}  // namespace
}  // namespace pf
