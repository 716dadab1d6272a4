// Truth: bytes written by the test itself; every refusal names the path.
#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>

namespace pf {
namespace {

TEST(MappedFile, ShowsTheBytesOfTheFile) {
  std::string path = testing::TempDir() + "pf_mapped_file";
  std::ofstream(path) << "draft";
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->bytes().size(), 5u);
  EXPECT_EQ(std::memcmp(file->bytes().data(), "draft", 5), 0);
  std::remove(path.c_str());
}

TEST(MappedFile, RefusesWhatIsNoFileAndNamesIt) {
  std::string empty = testing::TempDir() + "pf_mapped_empty";
  std::ofstream(empty).close();
  for (const std::string& path :
       {std::string("/nonexistent/model.gguf"), std::string("/tmp"), empty}) {
    auto file = MappedFile::open(path);
    ASSERT_FALSE(file.ok());
    EXPECT_NE(file.status().message().find(path), std::string::npos) << file.status().message();
  }
  std::remove(empty.c_str());
}

}  // namespace
}  // namespace pf
