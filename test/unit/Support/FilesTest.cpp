//===- FilesTest.cpp - writing whole files --------------------------------===//

#include "lib/Support/RecordFile.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace nsa;
namespace fs = std::filesystem;

TEST(Files, WrittenFile_IsReplaced) {
  TempDir dir;
  dir.write("x", "old contents");
  ASSERT_TRUE(writeFileAtomically(dir / "x", "new"));
  EXPECT_EQ(dir.read("x"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.str()), {}), 1);
}

// Renaming a file over it once took /dev/null away from root's machine.
TEST(Files, Device_IsWrittenIntoAndStays) {
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

TEST(Files, Folder_IsNotReplaced) {
  TempDir dir;
  dir.write("folder/x", "");
  EXPECT_EQ(messageOf(writeFileAtomically(dir / "folder", "new")),
            "cannot replace '" + dir / "folder" + "': Is a directory");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.str()), {}), 1);
}

TEST(ReadFile, LargerThanAllowed_NamesBothSizes) {
  TempDir dir;
  dir.write("x", std::string(1000, 'x'));
  EXPECT_EQ(readFile(dir / "x", 1000)->size(), 1000u);
  EXPECT_EQ(readFile(dir / "x", 999).message(),
            "cannot read '" + dir / "x" +
                "': it has 1000 bytes, 999 are "
                "allowed");
  EXPECT_EQ(readFile(dir.str()).message(),
            "cannot read '" + dir.str() + "': Is a directory");
}

TEST(ReadFile, DeviceWithoutEnd_IsAnError) {
  EXPECT_EQ(readFile("/dev/zero", 100000).message(),
            "cannot read '/dev/zero': it has more than 100000 bytes, 100000 "
            "are allowed");
  EXPECT_EQ(*readFile("/dev/null"), "");
}

TEST(ReadFile, PipeWithoutWriter_TimesOut) {
  TempDir dir;
  std::string pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(readFile(pipe, 1000, 20).message(),
            "cannot read '" + pipe + "': nothing came from it for 20 ms");
}

TEST(InputFile, Shrinks_ReadIsAnError) {
  TempDir dir;
  dir.write("x", std::string(100000, 'x'));
  InputFile file = take(InputFile::open(dir / "x"));
  std::string bytes(100, '\0');
  EXPECT_TRUE(file.readAt(99900, bytes.data(), 100));
  EXPECT_EQ(bytes, std::string(100, 'x'));
  fs::resize_file(dir / "x", 99950);
  EXPECT_EQ(file.readAt(99900, bytes.data(), 100).message(),
            "'" + dir / "x" +
                "' has shrunk: it ends before byte 100000, it "
                "had 100000 bytes when it was opened");
}

TEST(InputFile, NoRegularFile_IsRefusedAtOnce) {
  TempDir dir;
  std::string pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string &path : {pipe, dir.str(), std::string("/dev/zero")})
    EXPECT_EQ(InputFile::open(path).message(),
              "cannot open '" + path + "': not a regular file");
}

// Contents once went wherever a link with the name of the temporary file led.
TEST(Files, LinkUnderAPredictableName_IsNotFollowed) {
  TempDir dir;
  dir.write("victim", "untouched");
  fs::create_symlink(dir / "victim",
                     dir / "x.tmp." + std::to_string(::getpid()));
  ASSERT_TRUE(writeFileAtomically(dir / "x", "new"));
  EXPECT_EQ(dir.read("x"), "new");
  EXPECT_EQ(dir.read("victim"), "untouched");
}

TEST(Files, LinkInThePlaceOfANewFile_IsReplaced) {
  TempDir dir;
  dir.write("victim", "untouched");
  for (const char *target : {"victim", "nothing"}) {
    std::string link = dir / "to-" + target;
    fs::create_symlink(dir / target, link);
    EXPECT_FALSE(FileLock::take(link, "the run").ok());
    OutputFile file = take(OutputFile::create(link));
    EXPECT_TRUE(file.write("new"));
    EXPECT_FALSE(fs::is_symlink(link));
  }
  EXPECT_EQ(dir.read("victim"), "untouched");
  EXPECT_FALSE(fs::exists(dir / "nothing"));
}

TEST(Files, WrittenFile_HasThePermissionsOfTheUmask) {
  TempDir dir;
  mode_t old = ::umask(027);
  EXPECT_TRUE(writeFileAtomically(dir / "x", "new"));
  ::umask(old);
  EXPECT_EQ(fs::status(dir / "x").permissions(), fs::perms(0640));
}

TEST(Files, OwnFolder_IsThatOfTheUserAlone) {
  TempDir dir;
  ASSERT_TRUE(openOwnFolder(dir / "a/b", "the folder"));
  EXPECT_EQ(fs::status(dir / "a/b").permissions(), fs::perms::owner_all);
  // Of another user: of anyone but root, or of root.
  std::string foreign = "/";
  if (::geteuid() == 0)
    ASSERT_EQ(::chown((foreign = dir / "a/b").c_str(), 12345, 0), 0);
  std::string owner = ::geteuid() == 0 ? "12345" : "0";
  EXPECT_EQ(openOwnFolder(foreign, "the folder")
                .message()
                .rfind("the folder '" + foreign + "' belongs to user " + owner +
                           " and has mode ",
                       0),
            0u);
}

TEST(Files, OwnFile_IsNoLinkAndNobodyElseWrites) {
  TempDir dir;
  ASSERT_TRUE(writeFileAtomically(dir / "x", "code", /*isOwn=*/true));
  EXPECT_EQ(fs::status(dir / "x").permissions(), fs::perms(0600));
  EXPECT_EQ(*readOwnFile(dir / "x", 4), "code");
  fs::create_symlink(dir / "x", dir / "link");
  EXPECT_FALSE(readOwnFile(dir / "link", 4));
  fs::permissions(dir / "x", fs::perms(0620));
  EXPECT_TRUE(failsWith(readOwnFile(dir / "x", 4), "has mode 0620"));
}

TEST(Files, FileBeingWritten_IsItsOwnersAlone) {
  TempDir dir;
  OutputFile file = take(OutputFile::create(dir / "x"));
  fs::perms before = fs::status(dir / "x").permissions();
  ASSERT_TRUE(file.restrictToOwner());
  EXPECT_EQ(fs::status(dir / "x").permissions(), fs::perms(0600));
  ASSERT_TRUE(file.restoreMode());
  EXPECT_EQ(fs::status(dir / "x").permissions(), before);
}

TEST(Files, HeldDirectory_OtherAtItsPath_IsNotThere) {
  TempDir dir;
  fs::create_directories(dir / "run");
  HeldDirectory held = take(HeldDirectory::open(dir / "run"));
  EXPECT_TRUE(*held.isThere());
  fs::rename(dir / "run", dir / "renamed");
  EXPECT_FALSE(*held.isThere());
  fs::create_directories(dir / "run");
  EXPECT_FALSE(*held.isThere());
  fs::remove(dir / "run");
  fs::rename(dir / "renamed", dir / "run");
  EXPECT_TRUE(*held.isThere());
  EXPECT_FALSE(HeldDirectory::open(dir / "nothing").ok());
}

TEST(Files, RecordFile_NoRoom_KeepsRecordsInOrder) {
  TempDir dir;
  RecordFile file = take(RecordFile::open(dir / "x"));
  std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit old;
  getrlimit(RLIMIT_FSIZE, &old);
  struct rlimit small = {7, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Status first = file.write("one\n"), second = file.write("two\n");
  Status third = file.write("three\n"), end = file.finish();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_TRUE(first);
  EXPECT_EQ(messageOf(second),
            "cannot write '" + dir / "x" + "': File too large");
  EXPECT_TRUE(saysNoSpace(second.message()));
  EXPECT_TRUE(third) << "said once";
  EXPECT_EQ(messageOf(end),
            "the last 7 bytes of '" + dir / "x" + "' could not be written");
  EXPECT_EQ(dir.read("x"), "one\ntwo");
  EXPECT_TRUE(file.write("four\n"));
  EXPECT_TRUE(file.finish());
  EXPECT_EQ(dir.read("x"), "one\ntwo\nthree\nfour\n");
}
