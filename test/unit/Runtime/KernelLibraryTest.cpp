//===- KernelLibraryTest.cpp - objects that are linked in memory ----------===//

#include "runtime/CPU/KernelLibrary.h"
#include "lib/Support/Files.h"
#include "test/unit/Expect.h"

#include <elf.h>
#include <gtest/gtest.h>

using namespace nsa;

namespace {

std::string readObjects() { return take(readFile(NSA_TEST_OBJECTS)); }

/// Where the section headers of the only object are.
Elf64_Shdr *sectionsOf(std::string &archive, unsigned &count) {
  char *object = archive.data() + archive.find(ELFMAG);
  auto *header = reinterpret_cast<Elf64_Ehdr *>(object);
  count = header->e_shnum;
  return reinterpret_cast<Elf64_Shdr *>(object + header->e_shoff);
}

TEST(KernelLibrary, Objects_FunctionsRunAndOthersAreNotFound) {
  KernelLibrary library = take(KernelLibrary::load(readObjects()));
  float out[3] = {};
  void *arguments[] = {out};
  KernelFunction number = library.find("test_number");
  ASSERT_TRUE(number);
  number(arguments, 1, 3);
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[2], 2);
  EXPECT_FALSE(library.find("test_number_arguments"));
  EXPECT_FALSE(library.find("memcpy"));
}

TEST(KernelLibrary, DataThatCodeWrites_IsRefused) {
  std::string archive = readObjects();
  unsigned count = 0;
  Elf64_Shdr *sections = sectionsOf(archive, count);
  for (unsigned i = 0; i < count; ++i)
    if (sections[i].sh_flags & SHF_ALLOC)
      sections[i].sh_flags |= SHF_WRITE;
  EXPECT_EQ(KernelLibrary::load(archive).message(),
            "its binary refers to what is neither code nor constants");
}

TEST(KernelLibrary, AbsoluteRelocation_IsRefused) {
  std::string archive = readObjects();
  unsigned count = 0;
  Elf64_Shdr *sections = sectionsOf(archive, count);
  char *object = archive.data() + archive.find(ELFMAG);
  for (unsigned i = 0; i < count; ++i)
    if (sections[i].sh_type == SHT_RELA) {
      auto *first =
          reinterpret_cast<Elf64_Rela *>(object + sections[i].sh_offset);
      first->r_info = ELF64_R_INFO(ELF64_R_SYM(first->r_info), R_X86_64_64);
    }
  EXPECT_TRUE(contains(KernelLibrary::load(archive).message(),
                       "its binary has a relocation of the type 1, which is "
                       "not relative to where it lies"));
}

TEST(KernelLibrary, DamagedArchive_AnyByteOrLength_ErrorOrLibrary) {
  const std::string archive = readObjects();
  for (size_t i = 0; i < archive.size(); ++i) {
    for (int change : {1, 16, 128, 255}) {
      std::string damaged = archive;
      damaged[i] = char(damaged[i] ^ change);
      KernelLibrary::load(damaged);
    }
    // As many bytes as there are, for tools that find reads beyond the end.
    KernelLibrary::load(std::string(archive.data(), i));
  }
}

} // namespace
