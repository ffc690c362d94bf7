//===- EntryBuilder.h - a function on tensors as an entry -------*- C++ -*-===//
//
// Decides where every tensor value of a straight-line function lives and emits
// the commands of its entry, in the order of the function. A value may take
// over memory if the value in it has no later readers.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_HOST_ENTRYBUILDER_H
#define NSA_PASSES_HOST_ENTRYBUILDER_H

#include "dialects/NN/NNOps.h"
#include "passes/Host/Placement.h"
#include "passes/Host/TensorTable.h"
#include "llvm/ADT/StringMap.h"

namespace nsa::nn {
class BatchMatmulOp;
} // namespace nsa::nn

namespace nsa {

/// What was decided, for statistics.
struct BufferCounts {
  unsigned commands = 0;
  unsigned inPlace = 0;
  unsigned copies = 0;
};

class EntryBuilder {
public:
  EntryBuilder(mlir::func::FuncOp function, TensorTable &tensors,
               KernelLayouts &layouts, InPlaceAnalysis &inPlace,
               BufferCounts &counts)
      : function(function), tensors(tensors), layouts(layouts),
        inPlace(inPlace),
        placement(function, tensors.getSymbols(), layouts, inPlace),
        counts(counts), builder(function) {}

  /// Creates the entry before the function, which stays as it is.
  mlir::LogicalResult build();

private:
  // Readers of values, and destinations of results.
  void collectReaders();
  void noteReader(mlir::Value root, unsigned number);
  /// Finds the arguments that flat groups name. Emits an error if one is
  /// missing.
  mlir::LogicalResult collectFlatGroups();
  mlir::LogicalResult collectResults();
  void routeResult(unsigned result, mlir::Value value);
  std::optional<unsigned> getUpdatedArgument(unsigned result);
  std::optional<unsigned> findArgument(llvm::StringRef name);

  // Where a value lives.
  mlir::Value getRoot(mlir::Value value) const {
    return placement.getRoot(value);
  }
  /// Whether a value is only some of the elements of another one.
  bool isPart(mlir::Value value) const {
    return !placement.get(value).isWhole();
  }
  bool shows(mlir::Value value, mlir::Value root);
  const llvm::DenseSet<mlir::Value> &getPartRoots(nn::FlattenOp group);
  mlir::Value getTensorMemory(rt::TensorOp tensor);
  mlir::Value getArgumentMemory(unsigned index);
  mlir::Value getResultMemory(unsigned result);
  mlir::Value getMemory(mlir::Value value);
  mlir::Value viewAs(mlir::Value memory, mlir::Type tensorType,
                     mlir::Location loc);
  mlir::Value viewAt(const Place &place, mlir::Type tensorType,
                     mlir::Location loc);
  mlir::Value getDenseMemory(mlir::Value value);
  bool mayOverwrite(mlir::Value memory, mlir::OpResult value);
  mlir::Value createFlatView(mlir::ArrayAttr names, mlir::Type tensorType,
                             mlir::Location loc);
  mlir::Value findFlatView(mlir::OpResult value);
  mlir::Value findDestination(mlir::OpResult value);
  mlir::Value findReusable(mlir::OpResult value);
  mlir::LogicalResult place(mlir::OpResult value);

  // Commands.
  mlir::LogicalResult emit(mlir::Operation &op);
  mlir::LogicalResult emitFlatten(nn::FlattenOp group);
  mlir::LogicalResult emitUnflatten(nn::UnflattenOp unflatten);
  mlir::LogicalResult emitConcat(nn::ConcatOp concat);
  mlir::Value copyOddPart(mlir::Value part);
  mlir::Value getInputMemory(tile::LaunchOp launch, tile::KernelOp kernel,
                             unsigned index);
  mlir::LogicalResult emitLaunch(tile::LaunchOp launch);
  void emitGemm(nn::MatmulOp matmul);
  void emitBatch(nn::BatchMatmulOp matmul);
  void emitAllReduce(nn::AllReduceOp mean);
  void emitSliceShard(nn::SliceShardOp take);
  void emitAllGather(nn::AllGatherOp gather);
  void emitGather(nn::GatherSequenceOp gather);
  void emitReduceScatter(nn::ReduceScatterSequenceOp scatter);
  void emitGatherHalo(nn::GatherHaloOp gather);
  void emitReduceScatterHalo(nn::ReduceScatterHaloOp scatter);
  void emitCollective(rt::Collective kind, mlir::Value memory,
                      mlir::IntegerAttr ranks, mlir::Location loc,
                      mlir::Value rows = {});
  void emitFill(double value, mlir::Value memory, mlir::Location loc);
  void emitCopy(mlir::Value source, mlir::Value target, mlir::Location loc);
  void emitHead();
  void emitTail();

  mlir::func::FuncOp function;
  TensorTable &tensors;
  KernelLayouts &layouts;
  InPlaceAnalysis &inPlace;
  Placement placement;
  BufferCounts &counts;
  mlir::OpBuilder builder;
  rt::EntryOp entry;
  mlir::Operation *lastGet = nullptr;

  /// Operations by number, and the last one that reads a value or a view of
  /// it. A value that must be intact at the end has reader `kEnd`.
  static constexpr unsigned kEnd = ~0u;
  llvm::DenseMap<mlir::Operation *, unsigned> numbers;
  llvm::DenseMap<mlir::Value, unsigned> lastReaders;
  /// The result whose memory a value is computed into, if that is possible.
  llvm::DenseMap<mlir::Value, unsigned> destinations;
  /// Results that are copied or filled after everything else, or copied
  /// before everything else.
  llvm::SmallVector<unsigned> tail;
  llvm::SmallVector<unsigned> head;
  /// Old values of arguments that the tail needs although they are updated.
  llvm::SmallVector<mlir::BlockArgument> saved;
  /// Arguments by name, once one has been looked for.
  llvm::StringMap<unsigned> argumentNumbers;
  /// Arguments that some result updates.
  llvm::DenseSet<unsigned> updated;

  /// The argument in whose memory a part of a flat group has to be, and what a
  /// value is the operand of.
  llvm::DenseMap<mlir::Value, unsigned> flattened;
  llvm::DenseMap<mlir::Value, nn::UnflattenOp> unflattened;
  llvm::DenseMap<mlir::Operation *, llvm::DenseSet<mlir::Value>> partRoots;

  llvm::DenseMap<mlir::Value, mlir::Value> memories;
  llvm::DenseMap<mlir::Value, mlir::Value> savedMemories;
  llvm::DenseMap<mlir::Value, mlir::Value> denseCopies;
  /// The value that a memory holds at this point.
  llvm::DenseMap<mlir::Value, mlir::Value> occupants;
  /// The memories of updated arguments.
  llvm::DenseSet<mlir::Value> updatedMemories;
};

} // namespace nsa

#endif // NSA_PASSES_HOST_ENTRYBUILDER_H
