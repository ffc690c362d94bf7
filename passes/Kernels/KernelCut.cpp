//===- KernelCut.cpp - how kernels are cut for a machine ------------------===//

#include "passes/Kernels/KernelCut.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace nsa;

llvm::ArrayRef<TileSizes::Size> TileSizes::all() {
  static constexpr Size sizes[] = {
      {"forward-queries", &TileSizes::forwardQueries, true},
      {"forward-keys", &TileSizes::forwardKeys, true},
      {"backward-queries", &TileSizes::backwardQueries, true},
      {"backward-keys", &TileSizes::backwardKeys, true},
      {"selected-queries", &TileSizes::selectedQueries, false},
      {"selected-keys", &TileSizes::selectedKeys, false},
      {"gathered-queries", &TileSizes::gatheredQueries, false},
      {"gathered-heads", &TileSizes::gatheredHeads, false},
      {"select-queries", &TileSizes::selectQueries, true},
      {"select-blocks", &TileSizes::selectBlocks, false}};
  return sizes;
}

std::string TileSizes::parse(llvm::ArrayRef<std::string> texts) {
  for (const std::string &text : texts) {
    auto [name, number] = llvm::StringRef(text).split('=');
    const Size *entry = llvm::find_if(
        all(), [name = name](const Size &s) { return s.name == name; });
    if (entry == all().end()) {
      std::string names = llvm::join(
          llvm::map_range(all(), [](const Size &s) { return s.name.str(); }),
          ", ");
      return "unknown tile size '" + name.str() + "'; known are " + names;
    }
    int64_t size = 0;
    if (number.getAsInteger(10, size) || size <= 0)
      return "tile size '" + text + "' is not " + name.str() +
             "=SIZE with a positive number";
    if (this->*entry->size != 0)
      return "tile size " + name.str() + " is given twice, as " +
             std::to_string(this->*entry->size) + " and " +
             std::to_string(size);
    this->*entry->size = size;
  }
  return "";
}

std::string TileSizes::check(int64_t tileMultiple) const {
  // Registers and caches are the tighter limit.
  constexpr int64_t most = 256;
  for (const Size &entry : all()) {
    int64_t size = this->*entry.size;
    std::string is =
        "tile size " + entry.name.str() + " is " + std::to_string(size) + ", ";
    if (size < 0 || size > most)
      return is + "expected 1 to " + std::to_string(most) + ", or 0 to choose";
    if (entry.isAligned && size % tileMultiple != 0)
      return is + "no multiple of the machine's " +
             std::to_string(tileMultiple);
  }
  return "";
}
