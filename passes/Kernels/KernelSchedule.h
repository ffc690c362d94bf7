//===- KernelSchedule.h - how kernels are cut for a machine -----*- C++ -*-===//
//
// The conversions of graph operations to tile kernels ask the schedule for
// their sizes. What a kernel computes is the same under every schedule but for
// the order of long sums.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_KERNELSCHEDULE_H
#define NSA_PASSES_KERNELS_KERNELSCHEDULE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

namespace nsa {

/// What runs the programs of a kernel: a few CPU threads, each with a cache of
/// its own, the multiprocessors of a GPU, each with many blocks at once, or
/// those of a Hopper GPU, with wgmma.
enum class ScheduleKind { CPU, CUDA, Hopper };

/// Its values as an option.
inline auto getScheduleValues() {
  return llvm::cl::values(
      clEnumValN(ScheduleKind::CPU, "cpu", "a few threads"),
      clEnumValN(ScheduleKind::CUDA, "cuda", "the blocks of a GPU"),
      clEnumValN(ScheduleKind::Hopper, "hopper",
                 "the same, and warpgroups multiply"));
}

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

/// Sizes of kernels. The defaults are those for CPUs.
struct KernelSchedule {
  static KernelSchedule get(ScheduleKind kind);

  /// Takes precedence over what the conversions choose.
  TileSizes fixed;
  SelectedForm selectedForm = SelectedForm::Auto;

  /// Approximate elements per program of kernels over flat tensors or rows.
  int64_t elementsPerProgram = 16384;
  /// The longest tile of a flat tensor.
  int64_t elementsPerTile = 1024;
  /// The same where a program has a few numbers to compute first.
  int64_t elementsPerUpdate = 16384;
  /// Rows of `width` elements that a program treats at once. With several,
  /// threads that share a row need not wait for others.
  int64_t getRowsAtOnce(int64_t width) const;
  /// Elements of these rows at most; 0 for one row.
  int64_t elementsAtOnce = 0;
  /// Programs that fill the machine: the number to use where each program has a
  /// fixed cost.
  int64_t programs = 64;
  /// Parts, at most, of a sum to which every program contributes.
  int64_t mostPartialSums = 64;
  /// Columns of partial sums that a program adds, at most, and how many of the
  /// rows at once.
  int64_t sumColumns = 256;
  int64_t sumRows = 1;
  /// Elements of the parts of a table that programs scatter to; 0 for none.
  int64_t scatterElements = 0;
  /// Rows of a tile of (query, head of the group) pairs are a multiple of it if
  /// that is not many.
  int64_t rowMultiple = 1;
  /// Tiles along one dimension of attention are a multiple of it.
  int64_t tileMultiple = 8;
  /// Rows of one MMA of 16-bit tiles, the M of its shape; 0 if that does not
  /// matter.
  int64_t mmaRows = 0;
  /// Columns of tiles of scores that have a halo are a multiple of it.
  int64_t columnMultiple = 1;
  /// Programs that run in parallel. Tiles are smaller where there are fewer
  /// programs than that.
  int64_t processors = 1;
  /// True on GPUs: prefer redundant computation over serial work.
  bool isGPU = false;

  /// The fewest queries of a group that fill so many rows.
  int64_t getLeastQueries(int64_t group) const {
    return static_cast<int64_t>(llvm::divideCeil(rowMultiple, group));
  }
  /// The smallest number of queries from `queries` on which gives such rows;
  /// `queries` itself if that gives more than `mostRows` rows.
  int64_t alignQueries(int64_t queries, int64_t group, int64_t mostRows) const {
    int64_t aligned = static_cast<int64_t>(
        llvm::alignTo(queries, rowMultiple / std::gcd(group, rowMultiple)));
    return aligned * group <= mostRows ? aligned : queries;
  }
  /// The same, but the largest number up to `queries` if there is one.
  int64_t alignQueriesDown(int64_t queries, int64_t group,
                           int64_t mostRows) const {
    int64_t multiple = rowMultiple / std::gcd(group, rowMultiple);
    return queries >= multiple ? queries / multiple * multiple
                               : alignQueries(queries, group, mostRows);
  }
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_KERNELSCHEDULE_H
