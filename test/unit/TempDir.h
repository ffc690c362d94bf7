//===- TempDir.h - a folder that lives as long as a test --------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_TEMPDIR_H
#define NSA_TEST_UNIT_TEMPDIR_H

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

namespace nsa {

/// A fresh folder, removed with everything in it on destruction.
class TempDir {
public:
  TempDir() {
    std::string name =
        (std::filesystem::temp_directory_path() / "nsa-test-XXXXXX").string();
    char *made = mkdtemp(name.data());
    EXPECT_NE(made, nullptr);
    path = name;
  }
  ~TempDir() {
    std::error_code code;
    std::filesystem::remove_all(path, code);
  }
  TempDir(const TempDir &) = delete;
  TempDir &operator=(const TempDir &) = delete;

  std::string operator/(const std::string &name) const {
    return path + "/" + name;
  }
  const std::string &str() const { return path; }

  /// Writes a file below the folder, creating what leads to it.
  void write(const std::string &name, const std::string &contents) const {
    std::filesystem::path file = *this / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << contents;
  }

  std::string read(const std::string &name) const {
    std::ifstream file(*this / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

private:
  std::string path;
};

} // namespace nsa

#endif // NSA_TEST_UNIT_TEMPDIR_H
