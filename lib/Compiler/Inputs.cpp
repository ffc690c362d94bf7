//===- Inputs.cpp - what an artefact depends on ---------------------------===//

#include "lib/Support/Hash.h"
#include "lib/Target/CPU/CPUDescription.h"
#include "nsa/Artifact/Format.h"
#include "nsa/Compiler/Compiler.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Error.h"

#include <dlfcn.h>
#include <link.h>

using namespace nsa;

/// The hash of the file that this is part of: a module, or the program.
static Result<std::string> findBuild() {
  Dl_info info;
  link_map *file = nullptr;
  bool isKnown = ::dladdr1(reinterpret_cast<const void *>(&findBuild), &info,
                           reinterpret_cast<void **>(&file), RTLD_DL_LINKMAP);
  NSA_ASSIGN_OR_RETURN(
      uint64_t hash,
      hashFile(isKnown && *file->l_name ? file->l_name : "/proc/self/exe"));
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
