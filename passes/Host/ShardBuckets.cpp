//===- ShardBuckets.cpp - tensors of which ranks keep parts ---------------===//

#include "passes/Host/ShardBuckets.h"

using namespace mlir;
using namespace nsa;

LogicalResult ShardBuckets::collect(rt::SliceShardOp take) {
  SmallVector<FlatSymbolRefAttr> names = rt::getTensorNames(take.getMemory());
  auto whole = cast<MemRefType>(rt::getMemoryRoot(take.getPart()).getType());
  parts[take.getShard()] = whole.getNumElements();
  if (placeOf.contains(names.front().getAttr()))
    return success();
  uint64_t offset = rt::getByteOffset(take.getPart());
  if (offset % rt::kFlatViewAlignment != 0)
    return take.emitOpError("has its part at byte ")
           << offset << ", which is not a multiple of "
           << rt::kFlatViewAlignment;
  int64_t first = 0;
  for (FlatSymbolRefAttr name : names) {
    placeOf[name.getAttr()] = {buckets.size(), first};
    auto tensor = symbols.lookup<rt::TensorOp>(name.getAttr());
    first += int64_t(rt::getFlatViewBytes(tensor)) / 4;
  }
  buckets.push_back({names, take.getShard(), first, int64_t(offset) / 4});
  return success();
}

LogicalResult ShardBuckets::collect(uint64_t lastShard) {
  for (auto entry : module.getOps<rt::EntryOp>())
    for (auto take : entry.getOps<rt::SliceShardOp>()) {
      SmallVector<FlatSymbolRefAttr> names =
          rt::getTensorNames(take.getMemory());
      if (names.empty() || take.getShard() > lastShard)
        continue;
      auto tensor = symbols.lookup<rt::TensorOp>(names.front().getAttr());
      if (tensor.getRole() == role && failed(collect(take)))
        return failure();
    }
  return success();
}

bool ShardBuckets::contains(Value memory) const {
  return llvm::any_of(rt::getTensorNames(memory),
                      [&](FlatSymbolRefAttr name) { return contains(name); });
}

FailureOr<unsigned> ShardBuckets::find(Operation *command, Value memory) const {
  SmallVector<FlatSymbolRefAttr> names = rt::getTensorNames(memory);
  unsigned bucket = placeOf.lookup(names.front().getAttr()).first;
  for (FlatSymbolRefAttr name : names)
    if (auto place = placeOf.find(name.getAttr());
        place == placeOf.end() || place->second.first != bucket)
      return command->emitOpError("has tensors of two buckets as one operand, "
                                  "of which ranks keep parts");
  return bucket;
}

int64_t ShardBuckets::getOffset(Value root) const {
  return placeOf.lookup(rt::getTensorNames(root).front().getAttr()).second;
}

FailureOr<rt::TensorOp> ShardBuckets::createTensor(StringRef name,
                                                   rt::TensorRole role,
                                                   int64_t elements,
                                                   Type element) {
  if (Operation *other = symbols.lookup(name))
    return other->emitOpError("has the name of what ranks keep parts of");
  rt::TensorOp last;
  for (auto tensor : module.getOps<rt::TensorOp>())
    last = tensor;
  OpBuilder builder(module.getContext());
  builder.setInsertionPointAfter(last);
  auto tensor = rt::TensorOp::create(
      builder, last.getLoc(), role, name, MemRefType::get({elements}, element),
      /*init=*/{}, /*decay=*/false, /*state=*/StringAttr(),
      /*slice=*/rt::SliceAttr());
  symbols.insert(tensor);
  return tensor;
}

void nsa::eraseUnusedNames(rt::EntryOp entry) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(entry.getBody().front())))
    if (isa<rt::GetOp, rt::FlatViewOp, rt::ViewOp, rt::BufferOp>(op) &&
        op.use_empty())
      op.erase();
}
