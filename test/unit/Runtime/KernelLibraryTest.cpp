//===- KernelLibraryTest.cpp - objects that are linked in memory ----------===//

#include "runtime/CPU/KernelLibrary.h"
#include "lib/Support/Files.h"
#include "test/unit/Expect.h"

#include <cstring>
#include <elf.h>
#include <functional>
#include <gtest/gtest.h>

using namespace nsa;

namespace {

std::string readObjects() { return take(readFile(NSA_TEST_OBJECTS)); }

/// Changes a record of an archive, in which records have no alignment.
template <typename T>
T edit(std::string &archive, size_t at,
       const std::function<void(T &)> &change) {
  T record;
  std::memcpy(&record, archive.data() + at, sizeof record);
  change(record);
  std::memcpy(archive.data() + at, &record, sizeof record);
  return record;
}

/// Changes the section headers of the only object, and returns where it is.
size_t editSections(std::string &archive,
                    const std::function<void(Elf64_Shdr &)> &change) {
  size_t object = archive.find(ELFMAG);
  auto header = edit<Elf64_Ehdr>(archive, object, [](Elf64_Ehdr &) {});
  for (unsigned i = 0; i < header.e_shnum; ++i)
    edit<Elf64_Shdr>(archive, object + header.e_shoff + i * sizeof(Elf64_Shdr),
                     change);
  return object;
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

// As GDB reads it.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" const struct {
  unsigned version, action;
  const void *relevant;
  const struct Entry {
    const Entry *next, *previous;
    const char *object;
    uint64_t bytes;
  } *first;
} __jit_debug_descriptor;

TEST(KernelLibrary, Debugger_KnowsWhereCodeLiesUntilUnmapped) {
  ASSERT_FALSE(__jit_debug_descriptor.first);
  {
    KernelLibrary library = take(KernelLibrary::load(readObjects()));
    auto kernel = reinterpret_cast<uint64_t>(library.find("test_number"));
    ASSERT_TRUE(__jit_debug_descriptor.first);
    std::string object(__jit_debug_descriptor.first->object,
                       __jit_debug_descriptor.first->bytes);
    bool isFound = false;
    editSections(object, [&](Elf64_Shdr &section) {
      isFound |= section.sh_flags & SHF_EXECINSTR &&
                 section.sh_addr <= kernel &&
                 kernel < section.sh_addr + section.sh_size;
    });
    EXPECT_TRUE(isFound);
  }
  EXPECT_FALSE(__jit_debug_descriptor.first);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

TEST(KernelLibrary, DataThatCodeWrites_IsRefused) {
  std::string archive = readObjects();
  editSections(archive, [](Elf64_Shdr &section) {
    if (section.sh_flags & SHF_ALLOC)
      section.sh_flags |= SHF_WRITE;
  });
  EXPECT_EQ(KernelLibrary::load(archive).message(),
            "its binary refers to what is neither code nor constants");
}

TEST(KernelLibrary, AbsoluteRelocation_IsRefused) {
  std::string archive = readObjects();
  std::vector<size_t> relocations;
  size_t object = editSections(archive, [&](Elf64_Shdr &section) {
    if (section.sh_type == SHT_RELA)
      relocations.push_back(section.sh_offset);
  });
  for (size_t at : relocations)
    edit<Elf64_Rela>(archive, object + at, [](Elf64_Rela &first) {
      first.r_info = ELF64_R_INFO(ELF64_R_SYM(first.r_info), R_X86_64_64);
    });
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
