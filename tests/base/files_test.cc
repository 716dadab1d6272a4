// Truth: files and folders made by the test itself; every refusal names the path.
#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace pf {
namespace {

namespace fs = std::filesystem;

struct Files : testing::Test {
  Files() : folder(fs::path(testing::TempDir()) / ("pf_files." + std::to_string(getpid()))) {
    fs::create_directories(folder);
  }
  ~Files() override { fs::remove_all(folder); }
  std::string put(const char* name, const std::string& text) const {
    std::ofstream(folder / name, std::ios::binary) << text;
    return (folder / name).string();
  }
  const fs::path folder;
};

TEST_F(Files, AreReadWholeUpToTheLimit) {
  const std::string text = std::string(100'000, 'x') + '\0' + "end";
  const std::string path = put("text", text);
  EXPECT_EQ(*read_whole_file(path, text.size()), text);
  EXPECT_EQ(*read_whole_file(put("empty", ""), 0), "");
  Result<std::string> longer = read_whole_file(path, text.size() - 1);
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.status().message(), path + ": more than 100003 bytes, which is the limit");
  EXPECT_FALSE(read_whole_file("/dev/zero", 1000).ok()) << "has no size and no end";
}

// An ifstream opens a folder and reads nothing from it.
TEST_F(Files, AFolderIsNoEmptyFile) {
  for (const std::string& path : {folder.string(), (folder / "none").string()}) {
    Result<std::string> text = read_whole_file(path, 100);
    ASSERT_FALSE(text.ok());
    EXPECT_NE(text.status().message().find(path), std::string::npos) << text.status().message();
  }
  EXPECT_NE(read_whole_file(folder.string(), 100).status().message().find("is a folder"),
            std::string::npos);
}

TEST_F(Files, APipeIsReadToItsEnd) {
  const std::string path = (folder / "pipe").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "from a pipe"; });
  EXPECT_EQ(*read_whole_file(path, 100), "from a pipe");
  writer.join();
}

TEST_F(Files, WhereOneCanWriteIsKnownBefore) {
  EXPECT_TRUE(check_can_write((folder / "new").string()).ok());
  EXPECT_FALSE(fs::exists(folder / "new")) << "nothing is made";
  EXPECT_TRUE(check_can_write(put("old", "kept")).ok());
  EXPECT_EQ(fs::file_size(folder / "old"), 4u);
  EXPECT_TRUE(check_can_write("/dev/null").ok());
  for (const std::string& path :
       {folder.string(), (folder / "no/such").string(), (folder / "old/below").string()}) {
    Status s = check_can_write(path);
    ASSERT_FALSE(s.ok()) << path;
    EXPECT_NE(s.message().find(path), std::string::npos) << s.message();
  }
}

}  // namespace
}  // namespace pf
