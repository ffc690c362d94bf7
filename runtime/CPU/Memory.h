//===- Memory.h - the memory of a segment -----------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_MEMORY_H
#define NSA_RUNTIME_CPU_MEMORY_H

#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>

namespace nsa {

/// Zeroed pages, which are aligned to 4096 bytes at least. Movable; unmapped on
/// destruction.
class PageMemory {
public:
  /// At least `bytes` bytes; the address is valid for 0 bytes too.
  static Result<PageMemory> allocate(uint64_t bytes);

  PageMemory() = default;
  PageMemory(PageMemory &&other) noexcept;
  PageMemory &operator=(PageMemory &&other) noexcept;
  ~PageMemory();

  char *data() const { return static_cast<char *>(address); }
  uint64_t size() const { return bytes; }

private:
  void *address = nullptr;
  uint64_t mapped = 0;
  uint64_t bytes = 0;
};

/// Gives the pages inside of a range of such memory back: they read as zeros.
void discardPages(void *data, uint64_t bytes);

} // namespace nsa

#endif // NSA_RUNTIME_CPU_MEMORY_H
