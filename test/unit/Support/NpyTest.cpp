//===- NpyTest.cpp - NumPy array files ------------------------------------===//

#include "lib/Support/Npy.h"
#include "lib/Support/Files.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <gtest/gtest.h>

using namespace nsa;

namespace {

/// A file of version 1.0 with this dictionary and data.
std::string makeFile(const std::string &dictionary, const std::string &data,
                     int major = 1) {
  std::string length;
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i)
    length += char(dictionary.size() >> 8 * i);
  return std::string("\x93NUMPY") + char(major) + '\0' + length + dictionary +
         data;
}

void expectError(const std::string &contents, const std::string &part) {
  EXPECT_TRUE(failsWith(parseNpy(contents), part));
}

} // namespace

TEST(Npy, Written_ReadsBack) {
  TempDir dir;
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  std::string contents = formatNpy(NpyType::F4, {2, 3}, values.data());
  ASSERT_TRUE(writeFileAtomically(dir / "a.npy", contents).ok());
  NpyArray array = take(readNpy(dir / "a.npy"));
  EXPECT_EQ(array.type, NpyType::F4);
  EXPECT_EQ(array.shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(array.elements(), 6u);
  EXPECT_EQ(std::vector<float>(array.as<float>(), array.as<float>() + 6),
            values);
  EXPECT_TRUE(failsWith(readNpy(dir / "b.npy"), "b.npy"));
}

// What numpy.save(numpy.zeros((3,), "<i4")) writes.
TEST(Npy, Written_IsWhatNumPyWrites) {
  int32_t zeros[3] = {};
  std::string expected = "{'descr': '<i4', 'fortran_order': False, 'shape': "
                         "(3,), }";
  expected += std::string(118 - 1 - expected.size(), ' ') + "\n";
  EXPECT_EQ(formatNpy(NpyType::I4, {3}, zeros),
            makeFile(expected, std::string(12, '\0')));
}

TEST(Npy, EveryTypeShapeAndVersion_IsRead) {
  const std::pair<const char *, NpyType> types[] = {
      {"<f2", NpyType::F2}, {"<f4", NpyType::F4}, {"<f8", NpyType::F8},
      {"<i4", NpyType::I4}, {"<i8", NpyType::I8}, {"<u2", NpyType::U2}};
  for (const auto &[descriptor, type] : types)
    for (int version : {1, 2, 3}) {
      NpyArray array = take(parseNpy(
          makeFile(std::string("{\"shape\":(2,),'descr':'") + descriptor +
                       "' , 'fortran_order' : False}  \n",
                   std::string(2 * npyElementBytes(type), 'x'), version)));
      EXPECT_EQ(array.type, type);
    }
  uint64_t number = 7;
  for (const std::vector<uint64_t> &shape :
       {std::vector<uint64_t>{}, {1}, {1, 1}, {3, 0, 2}}) {
    NpyArray array = take(parseNpy(formatNpy(NpyType::I8, shape, &number)));
    EXPECT_EQ(array.shape, shape);
  }
}

TEST(Npy, Errors_NameWhatIsWrong) {
  expectError("", "not an .npy file");
  expectError(std::string("\x93NUMPY\x09\x00\x00\x00", 10),
              "version 9.0 is not one of");
  expectError(
      makeFile("{'descr': '<f4', 'fortran_order': True, 'shape': ()}", "0000"),
      "Fortran order");
  expectError(
      makeFile("{'descr': '>f4', 'fortran_order': False, 'shape': ()}", "0000"),
      "element type '>f4' is not one of");
  expectError(makeFile("{'descr': [('a', '<f4')], 'fortran_order': False, "
                       "'shape': ()}",
                       "0000"),
              "not a plain type");
  expectError(
      makeFile("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
               "0000"),
      "an array f32[2] has 8 bytes, found 4");
  expectError(makeFile("{'descr': '<f4', 'fortran_order': False, 'shape': "
                       "(18446744073709551615, 9)}",
                       "0000"),
              "over 2^64 bytes");
  expectError(makeFile("{'descr': '<f4', 'shape': ()}", "0000"), "lacks one");
  expectError(makeFile("{'descr': '<f4', 'descr': '<f4'}", "0000"),
              "duplicate name 'descr'");
  expectError(makeFile("{'descr': '<f4', 'fortran_order': False, 'shape': "
                       "(99999999999999999999,)}",
                       ""),
              "is not an unsigned integer");
}

// Whatever is named as an array is not taken into memory to find out that it is
// none.
TEST(Npy, HugeFileOfOtherContents_IsRefusedUnread) {
  TempDir dir;
  dir.write("x.npy", "");
  std::filesystem::resize_file(dir / "x.npy", uint64_t(1) << 40);
  EXPECT_EQ(readNpy(dir / "x.npy").message(), dir / "x.npy: not an .npy file");
}

TEST(Npy, HugeArray_NamesBothSizes) {
  TempDir dir;
  dir.write("x.npy", makeFile("{'descr': '<f4', 'fortran_order': False, "
                              "'shape': (8589934592,), }",
                              ""));
  uint64_t header = std::filesystem::file_size(dir / "x.npy");
  std::filesystem::resize_file(dir / "x.npy", header + (uint64_t(1) << 35));
  EXPECT_EQ(readNpy(dir / "x.npy").message(),
            dir / "x.npy: an array of " +
                std::to_string(header + (uint64_t(1) << 35)) +
                " bytes, 17179869184 are allowed");
}
