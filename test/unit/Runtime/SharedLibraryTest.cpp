//===- SharedLibraryTest.cpp - where libraries are looked for -------------===//

#include "runtime/CPU/SharedLibrary.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"
#include <gtest/gtest.h>

using namespace nsa;

namespace {

/// Sets NSA_LIBRARY_PATH as long as a test runs.
class SharedLibraryTest : public testing::Test {
protected:
  void search(const std::string &folders) {
    ::setenv("NSA_LIBRARY_PATH", folders.c_str(), /*overwrite=*/1);
  }
  ~SharedLibraryTest() override { ::unsetenv("NSA_LIBRARY_PATH"); }

  TempDir folder;
};

TEST_F(SharedLibraryTest, NameInFolderOfEnvironment_Opened) {
  Result<SharedLibrary> math = SharedLibrary::open("libm", "", {"libm.so.6"});
  ASSERT_TRUE(math) << math.message();
  EXPECT_EQ(math->path, "libm.so.6");
  Dl_info info;
  ASSERT_TRUE(::dladdr(::dlsym(math->handle, "cos"), &info));
  std::filesystem::create_symlink(info.dli_fname, folder / "libnsa-math.so");
  search("/nonexistent::" + folder.str());
  SharedLibrary copy =
      take(SharedLibrary::open("libm", "", {"libnsa-math.so"}));
  EXPECT_EQ(copy.path, folder / "libnsa-math.so");
}

TEST_F(SharedLibraryTest, NameNowhere_ErrorNamesFolderAndPackages) {
  search(folder.str());
  Result<SharedLibrary> none =
      SharedLibrary::open("libfoo", "", {"libnsa-foo.so"}, "the package foo");
  EXPECT_TRUE(failsWith(none, folder / "libnsa-foo.so"));
  EXPECT_TRUE(failsWith(none, "; it comes with the package foo"));
}

TEST_F(SharedLibraryTest, ChosenFile_EnvironmentNotSearched) {
  search(folder.str());
  Result<SharedLibrary> none = SharedLibrary::open(
      "libfoo", "libnsa-foo.so", {"libnsa-foo.so"}, "the package foo");
  ASSERT_FALSE(none);
  EXPECT_FALSE(contains(none.message(), folder.str()));
  EXPECT_FALSE(contains(none.message(), "it comes with"));
}

} // namespace
