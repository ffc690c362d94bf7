//===- ELFObject.h - relocatable objects, checked ---------------*- C++ -*-===//
//
// What the linker of kernels takes from an object. Everything that lies in the
// file is checked while it is read: indices and ranges are good afterwards.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_TARGET_CPU_ELFOBJECT_H
#define NSA_LIB_TARGET_CPU_ELFOBJECT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <optional>
#include <vector>

namespace nsa {

/// One of R_X86_64_PC32, R_X86_64_PLT32 and R_X86_64_PC64; the bytes that it
/// alters lie in its section.
struct ObjectRelocation {
  uint64_t offset;
  uint32_t type;
  /// Index into the symbols.
  uint32_t symbol;
  int64_t addend;
};

struct ObjectSection {
  llvm::StringRef name;
  llvm::ArrayRef<uint8_t> contents;
  /// A power of two, at most a page.
  uint64_t alignment = 1;
  /// Whether a loader maps it; what follows is for those sections only.
  bool isMapped = false;
  /// Code, or else constants.
  bool isCode = false;
  std::vector<ObjectRelocation> relocations;
};

struct ObjectSymbol {
  llvm::StringRef name;
  /// A mapped section, by index, in which [value, value + size) lies; none
  /// where the symbol is undefined or means something else.
  std::optional<uint32_t> section;
  uint64_t value;
  uint64_t size;
  bool isUndefined;
  /// Code that others may call.
  bool isExported;
};

/// Sections and symbols have the indices that they have in the file. The
/// object refers to the bytes it was read from.
struct ELFObject {
  std::vector<ObjectSection> sections;
  std::vector<ObjectSymbol> symbols;
};

/// Reads a relocatable ELF object for x86-64. Fails where it is damaged or has
/// what kernels do without: writable or thread-local data, constructors, or
/// relocations of other types than the above.
llvm::Expected<ELFObject> readELFObject(llvm::ArrayRef<char> bytes);

} // namespace nsa

#endif // NSA_LIB_TARGET_CPU_ELFOBJECT_H
