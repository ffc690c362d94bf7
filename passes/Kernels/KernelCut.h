//===- KernelCut.h - how kernels are cut for a machine -----*- C++ -*-===//
//
// The conversions of graph operations to tile kernels ask it for their sizes.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_KERNELCUT_H
#define NSA_PASSES_KERNELS_KERNELCUT_H

#include "dialects/NSA/NSADialect.h"
#include "llvm/Support/CommandLine.h"
#include <cstdint>
#include <string>

namespace nsa {

/// How kernels of the selected branch find the keys of a query: from lists of
/// the blocks that were selected, or from masks while they go through all
/// blocks; or each block finds the queries that selected it.
enum class SelectedForm { Auto, Lists, Masks, Gathered };

/// Its values as an option.
inline auto getSelectedFormValues() {
  return llvm::cl::values(
      clEnumValN(SelectedForm::Auto, "auto", "whatever is faster"),
      clEnumValN(SelectedForm::Lists, "lists",
                 "from lists of the selected blocks"),
      clEnumValN(SelectedForm::Masks, "masks",
                 "from masks of all blocks, on GPUs"),
      clEnumValN(SelectedForm::Gathered, "gathered",
                 "queries are gathered for each block, on GPUs"));
}

/// Sizes of the tiles of attention that options fix; where one is 0, the
/// conversion chooses. Shorter sequences have smaller tiles.
struct TileSizes {
  /// Of compressed and window attention: queries of a program, and keys of the
  /// tiles that it iterates over.
  int64_t forwardQueries = 0, forwardKeys = 0;
  /// Of their gradients: queries and keys of a program, or of the tiles that a
  /// program of the other iterates over.
  int64_t backwardQueries = 0, backwardKeys = 0;
  /// Of the selected branch and kernels that it shares with others: queries of
  /// a program, at least, since M-tiles of 16 rows are filled; keys of a tile,
  /// at most, since they divide a selection block; queries that the gradient of
  /// keys gathers at once.
  int64_t selectedQueries = 0, selectedKeys = 0, gatheredQueries = 0;
  /// Key heads whose gathered queries have parts of sums at once.
  int64_t gatheredHeads = 0;
  /// Of nsa.select: queries of a program, selection blocks that it scores at
  /// once.
  int64_t selectQueries = 0, selectBlocks = 0;

  /// A size, as passes and tools spell it.
  struct Size {
    llvm::StringLiteral name;
    int64_t TileSizes::*size;
    /// Whether the machine's `tileMultiple` divides it.
    bool isAligned;
  };
  static llvm::ArrayRef<Size> all();

  /// Reads "NAME=SIZE" texts, each name at most once. Returns why they cannot
  /// be read, or nothing.
  std::string parse(llvm::ArrayRef<std::string> texts);

  /// Why sizes cannot be those of a machine with this `tileMultiple`; nothing
  /// if they can.
  std::string check(int64_t tileMultiple) const;
};

/// A machine, and what is not to be chosen for it.
struct KernelCut : MachineAttr {
  KernelCut(MachineAttr machine) : MachineAttr(machine) {}

  TileSizes fixed;
  SelectedForm selectedForm = SelectedForm::Auto;
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_KERNELCUT_H
