//===- EntryDeriver.h - an entry that generates, of a model -----*- C++ -*-===//
//
// Most operations of a model treat every token alone: one token at a time, they
// are the same operations on one row. Others need values of earlier tokens,
// which caches keep.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_GRAPH_ENTRYDERIVER_H
#define NSA_PASSES_GRAPH_ENTRYDERIVER_H

#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSAOps.h"
#include "passes/Graph/FunctionUtils.h"
#include "llvm/ADT/MapVector.h"

namespace nsa {

/// What entries are made for.
struct EntryPlan {
  /// Tokens of a sequence, at most.
  int64_t context;
  /// Tokens of a part of a prompt; 0 where there are no parts.
  int64_t part = 0;
  /// The model is trained beside the entry.
  bool isShared = false;
  /// Pages that sequences share for the rows of tokens; 0 gives each its own
  /// rows for the whole context.
  int64_t pages = 0;
};

/// Makes one entry of a copy of the model.
class EntryDeriver {
public:
  EntryDeriver(mlir::func::FuncOp function, EntryPlan plan)
      : function(function), plan(plan), context(plan.context),
        signature(function), builder(function.front().getTerminator()) {}

  /// One step: one token of each sequence.
  llvm::LogicalResult deriveDecode();
  /// Whole sequences, of which the last logits are a result.
  llvm::LogicalResult derivePrefill();
  /// Tokens of one of the sequences, from a position on.
  llvm::LogicalResult derivePart();

private:
  /// The rows of a value that later tokens need.
  struct Cache {
    /// How many, at least.
    int64_t rows = 0;
    /// Whether some attention iterates over a window of them.
    bool isWindow = false;
    /// The argument, and its value after the entry.
    mlir::BlockArgument argument;
    mlir::Value updated;
    /// Of a part: the rows of its sequence, one after the other.
    mlir::Value whole;
  };

  llvm::LogicalResult prepare(llvm::StringRef lastName, bool isPart = false);
  mlir::BlockArgument addInput(llvm::StringRef name,
                               llvm::ArrayRef<int64_t> shape);
  void renameTokens(llvm::StringRef name, llvm::ArrayRef<int64_t> shape);
  llvm::LogicalResult resizeTables();
  llvm::LogicalResult planCaches();
  void matchKeysAndValues();
  void need(mlir::Value value, int64_t rows, bool isWindow = false);
  llvm::LogicalResult needKeys(mlir::Operation *op,
                               VisibilityAttrInterface visibility,
                               mlir::ValueRange values);
  void addCaches();
  void addResults();

  llvm::LogicalResult step(mlir::Operation *op);
  SelectedAttr limitSelected(SelectOp op) const;
  llvm::LogicalResult stepPart(mlir::Operation *op);
  mlir::Value placeOf(mlir::Value value);
  void replace(mlir::Operation *op, mlir::Operation *by);
  mlir::Value append(mlir::Value value);
  mlir::Value pagesOf(mlir::Value value) const;
  int64_t getPageRows();
  mlir::Value appendToPart(mlir::Value value);
  llvm::LogicalResult stepRotary(nn::RotaryOp op);
  llvm::LogicalResult stepCompress(CompressOp op);
  llvm::LogicalResult stepAttention(AttentionOp op);
  llvm::LogicalResult stepSelect(SelectOp op);
  llvm::LogicalResult stepToken(mlir::Operation *op);

  LastBlockOp getLastBlock(CompressedAttr compressed);
  llvm::LogicalResult takeLastRow();

  mlir::func::FuncOp function;
  EntryPlan plan;
  int64_t context;
  Signature signature;
  mlir::OpBuilder builder;
  mlir::BlockArgument positions;
  /// Where a part begins, and where its queries stand in the keys that they
  /// see.
  mlir::BlockArgument at, queriesAt;
  /// The pages of each sequence; null without.
  mlir::BlockArgument pages;
  /// Of values whose rows are compressed blocks: how these are made.
  llvm::DenseMap<mlir::Value, CompressedAttr> blocks;
  /// Numbers of caches by value.
  llvm::MapVector<mlir::Value, unsigned> numbers;
  llvm::SmallVector<Cache> caches;
  /// Values that have one row.
  llvm::DenseSet<mlir::Value> rows;
  llvm::DenseMap<CompressedAttr, LastBlockOp> lastBlocks;
  llvm::DenseMap<CompressedAttr, mlir::Value> firstBlocks;
};

} // namespace nsa

#endif // NSA_PASSES_GRAPH_ENTRYDERIVER_H
