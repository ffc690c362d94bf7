//===- CommandOrder.h - orders of an entry's commands -----------*- C++ -*-===//

#ifndef NSA_PASSES_HOST_COMMANDORDER_H
#define NSA_PASSES_HOST_COMMANDORDER_H

#include "dialects/RT/RTOps.h"

namespace nsa {

/// The memory that the commands of an entry touch, as a graph of commands that
/// must come after others. Commands are named by their number in the order
/// that the entry had.
class CommandGraph {
public:
  explicit CommandGraph(llvm::ArrayRef<rt::CommandOpInterface> commands);

  unsigned size() const { return accesses.size(); }

  /// The largest number of bytes of buffers alive at one command.
  uint64_t getPeak(llvm::ArrayRef<unsigned> order) const;

  /// A legal order: at each step, among the ready commands less than
  /// `lookAhead` from the first one that is not listed, the one with the
  /// least growth of live memory, the earliest at a tie.
  llvm::SmallVector<unsigned> listGreedily(unsigned lookAhead) const;

  /// The first command (its number) that would see another value in an order
  /// than it does in the entry's, if there is one.
  std::optional<unsigned> findMisorder(llvm::ArrayRef<unsigned> order) const;

private:
  struct Access {
    unsigned memory;
    bool reads, writes;
  };
  /// Memory by number: bytes of a buffer (0 for a named tensor) and how many
  /// commands touch it.
  struct Memory {
    uint64_t bytes = 0;
    unsigned numUsers = 0;
  };

  void addAccess(llvm::SmallVectorImpl<Access> &list, unsigned memory,
                 bool writes);
  void addEdges();
  /// For every access, the command that wrote what it finds.
  std::vector<llvm::SmallVector<int, 4>>
  getWriters(llvm::ArrayRef<unsigned> order) const;

  std::vector<llvm::SmallVector<Access, 4>> accesses;
  std::vector<Memory> memories;
  std::vector<llvm::SmallVector<unsigned, 4>> successors;
  std::vector<unsigned> numPredecessors;
};

} // namespace nsa

#endif // NSA_PASSES_HOST_COMMANDORDER_H
