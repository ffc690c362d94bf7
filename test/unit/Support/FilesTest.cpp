//===- FilesTest.cpp - writing whole files --------------------------------===//

#include "lib/Support/Files.h"
#include "test/unit/TempDir.h"

#include <sys/stat.h>
#include <thread>

using namespace nsa;
namespace fs = std::filesystem;

TEST(Files, AWrittenFileIsReplaced) {
  TempDir dir;
  dir.write("x", "old contents");
  ASSERT_TRUE(writeFileAtomically(dir / "x", "new"));
  EXPECT_EQ(dir.read("x"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.str()), {}), 1);
}

// Renaming a file over it once took /dev/null away from root's machine.
TEST(Files, ADeviceIsWrittenIntoAndStays) {
  TempDir dir;
  std::string pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string received;
  std::thread reader([&] { received = *readFile(pipe); });
  Status status = writeFileAtomically(pipe, "through the pipe");
  if (!fs::is_fifo(pipe)) {
    reader.detach();
    FAIL() << "the pipe is gone";
  }
  reader.join();
  EXPECT_TRUE(status) << status.message();
  EXPECT_EQ(received, "through the pipe");
}

TEST(Files, AFolderIsNotReplaced) {
  TempDir dir;
  dir.write("folder/x", "");
  Status status = writeFileAtomically(dir / "folder", "new");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.message(),
            "cannot replace '" + dir / "folder" + "': Is a directory");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.str()), {}), 1);
}
