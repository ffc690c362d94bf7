//===- Inputs.cpp - what an artefact depends on ---------------------------===//

#include "lib/Support/Hash.h"
#include "lib/Target/CPU/CPUDescription.h"
#include "nsa/Artifact/Format.h"
#include "nsa/Compiler/Options.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Error.h"

#include <cstring>
#include <link.h>

using namespace nsa;

namespace {

/// A loaded file that holds an address: its path, which is empty for the
/// program itself, and the note in it that identifies its build.
struct LoadedFile {
  uintptr_t address = 0;
  std::string path;
  std::string buildId;
};

} // namespace

/// The description of the note NT_GNU_BUILD_ID among the notes in memory.
static std::string findBuildId(const char *notes, size_t size) {
  constexpr size_t alignment = 4;
  auto align = [](size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
  };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes, sizeof note);
    size_t whole = sizeof note + align(note.n_namesz) + align(note.n_descsz);
    if (whole > size)
      return "";
    const char *name = notes + sizeof note;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof "GNU" &&
        std::memcmp(name, "GNU", sizeof "GNU") == 0)
      return llvm::toHex(
          llvm::StringRef(name + align(note.n_namesz), note.n_descsz),
          /*LowerCase=*/true);
    notes += whole;
    size -= whole;
  }
  return "";
}

static int visitFile(dl_phdr_info *info, size_t, void *result) {
  auto &file = *static_cast<LoadedFile *>(result);
  bool holds = false;
  std::string id;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) &header = info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD)
      holds |= file.address >= begin && file.address < begin + header.p_memsz;
    if (header.p_type == PT_NOTE && id.empty())
      // NOLINTNEXTLINE(performance-no-int-to-ptr): so the loader tells it.
      id = findBuildId(reinterpret_cast<const char *>(begin), header.p_memsz);
  }
  if (!holds)
    return 0;
  file.path = info->dlpi_name;
  file.buildId = id;
  return 1;
}

/// The build of the file that this is part of: the note of the linker or, where
/// it writes none, the hash of the file.
static Result<std::string> findBuild() {
  LoadedFile file;
  file.address = reinterpret_cast<uintptr_t>(&findBuildId);
  dl_iterate_phdr(visitFile, &file);
  if (!file.buildId.empty())
    return file.buildId;
  NSA_ASSIGN_OR_RETURN(
      uint64_t hash,
      hashFile(file.path.empty() ? "/proc/self/exe" : file.path));
  return toHex(hash);
}

Result<std::string> nsa::describeInputs(const CompilerOptions &options) {
  static const Result<std::string> build = findBuild();
  if (!build)
    return Error{build.message()};
  std::string text = "build=" + *build + "\n";
  for (const OptionField &field : optionFields())
    text += field.name + "=" + field.read(options) + "\n";
  if (options.target != artifact::cpuTarget && !options.ptxas.empty()) {
    NSA_ASSIGN_OR_RETURN(uint64_t hash, hashFile(options.ptxas));
    text += "ptxas=" + toHex(hash) + "\n";
  }
  // Another name for what each machine has.
  if (options.cpu == "native") {
    llvm::Expected<CPUDescription> cpu = describeCPU(options.cpu);
    if (!cpu)
      return Error{llvm::toString(cpu.takeError())};
    text += cpu->name + ":" + llvm::join(cpu->features, ",") + "\n";
  }
  return text;
}
