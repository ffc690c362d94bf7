//===- KernelLibrary.h - the artefact's machine code ------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_KERNELLIBRARY_H
#define NSA_RUNTIME_CPU_KERNELLIBRARY_H

#include "runtime/CPU/DebugObject.h"
#include "runtime/CPU/Memory.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace nsa {

/// A compiled kernel: runs the programs begin..end-1 of its grid. `arguments`
/// are the base addresses of its inputs, then of its outputs.
using KernelFunction = void (*)(void *const *arguments, int64_t begin,
                                int64_t end);

/// The kernels of an artefact, ready to run and known to debuggers;
/// unmapped on destruction.
class KernelLibrary {
public:
  /// Maps the code and constants of an archive (ar) of ELF objects for x86-64,
  /// which call memcpy, memmove and memset and nothing else of this process.
  /// Fails on anything that is not complete, and on writable data.
  static Result<KernelLibrary> load(std::string_view archive);

  /// The kernel of this symbol, or null.
  KernelFunction find(const std::string &symbol) const {
    auto found = kernels.find(symbol);
    return found == kernels.end() ? nullptr : found->second;
  }

private:
  PageMemory memory;
  std::map<std::string, KernelFunction> kernels;
  std::vector<DebugObject> debugObjects;
};

} // namespace nsa

#endif // NSA_RUNTIME_CPU_KERNELLIBRARY_H
