//===- ShardBuckets.h - tensors of which ranks keep parts -------*- C++ -*-===//

#ifndef NSA_PASSES_HOST_SHARDBUCKETS_H
#define NSA_PASSES_HOST_SHARDBUCKETS_H

#include "dialects/RT/RTOps.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"

#include <map>

namespace nsa {

/// Tensors that lie one after the other, of which each rank has a part.
struct ShardBucket {
  llvm::SmallVector<mlir::FlatSymbolRefAttr> names;
  uint64_t shard = 0;
  int64_t elements = 0;
  /// In elements, in the parts of its shard.
  int64_t partOffset = 0;
};

/// The buckets of parameters or gradients, as the commands `rt.slice_shard` of
/// a program's update cut them.
class ShardBuckets {
public:
  ShardBuckets(mlir::ModuleOp module, rt::TensorRole role)
      : module(module), role(role), symbols(module) {}

  /// Finds them, up to the shard of number `lastShard`. Fails where a part
  /// begins at no multiple of 64 bytes.
  llvm::LogicalResult collect(uint64_t lastShard);

  llvm::ArrayRef<ShardBucket> get() const { return buckets; }
  const ShardBucket &operator[](unsigned number) const {
    return buckets[number];
  }
  /// Elements of the parts of a rank, by shard.
  const std::map<uint64_t, int64_t> &getParts() const { return parts; }

  /// Whether a tensor is in a bucket, or memory shows something of one.
  bool contains(mlir::FlatSymbolRefAttr name) const {
    return placeOf.contains(name.getAttr());
  }
  bool contains(mlir::Value memory) const;
  /// The number of the bucket that an operand of `command` shows something of.
  llvm::FailureOr<unsigned> find(mlir::Operation *command,
                                 mlir::Value memory) const;
  /// Where named memory begins in its bucket, in elements.
  int64_t getOffset(mlir::Value root) const;

  /// Makes a tensor after the last one; its name must be free.
  llvm::FailureOr<rt::TensorOp> createTensor(llvm::StringRef name,
                                             rt::TensorRole role,
                                             int64_t elements,
                                             mlir::Type element);
  mlir::SymbolTable &getSymbols() { return symbols; }

private:
  llvm::LogicalResult collect(rt::SliceShardOp take);

  mlir::ModuleOp module;
  rt::TensorRole role;
  mlir::SymbolTable symbols;
  llvm::SmallVector<ShardBucket> buckets;
  /// Of a tensor, the number of its bucket and the first element there.
  llvm::DenseMap<mlir::StringAttr, std::pair<unsigned, int64_t>> placeOf;
  std::map<uint64_t, int64_t> parts;
};

/// Erases what names memory that no command uses any more.
void eraseUnusedNames(rt::EntryOp entry);

} // namespace nsa

#endif // NSA_PASSES_HOST_SHARDBUCKETS_H
