//===- KernelLibrary.h - the artefact's machine code ------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_KERNELLIBRARY_H
#define NSA_RUNTIME_CPU_KERNELLIBRARY_H

#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace nsa {

/// A compiled kernel: runs the programs begin..end-1 of its grid. `arguments`
/// are the base addresses of its inputs, then of its outputs.
using KernelFunction = void (*)(void *const *arguments, int64_t begin,
                                int64_t end);

/// An ELF shared object, loaded from memory; unloaded on destruction.
class KernelLibrary {
public:
  /// Loads a copy of `size` bytes at `data`. Fails on anything that is not a
  /// complete shared object for this machine.
  static Result<KernelLibrary> load(const void *data, size_t size);

  KernelLibrary() = default;
  KernelLibrary(KernelLibrary &&other) noexcept;
  KernelLibrary &operator=(KernelLibrary &&other) noexcept;
  ~KernelLibrary();

  /// The kernel of this symbol, or null.
  KernelFunction find(const std::string &symbol) const;

private:
  void *handle = nullptr;
  int fd = -1;
};

} // namespace nsa

#endif // NSA_RUNTIME_CPU_KERNELLIBRARY_H
