//===- FuseRotation.cpp - rotary embedding in the kernels of attention ----===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NN/NNOps.h"
#include "passes/Graph/FuseAttention.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa;

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

/// Whether row `t` is rotated by the angles of position `t`, which in packed
/// sequences counts from `start`.
static bool rotatesTokens(nn::RotaryOp rotation, Value start) {
  return !rotation.getInverse() && rotation.getStride() == 1 &&
         !rotation.getAt() && rotation.getStart() == start;
}

/// The keys to which `attention` attends with the queries `query`, each a row
/// for every token.
static SmallVector<Value> getKeysOf(Operation *attention, Value query) {
  return llvm::TypeSwitch<Operation *, SmallVector<Value>>(attention)
      .Case([&](FusedOp op) {
        SmallVector<Value> keys;
        for (auto inner : op.getBody().getOps<AttentionOp>())
          if (op.getOutside(inner.getQuery()) == query)
            keys.push_back(op.getOutside(inner.getKey()));
        return keys;
      })
      .Case([&](AttentionOp op) -> SmallVector<Value> {
        if (op.getQuery() != query || !op.getVisibility().attendsToTokens())
          return {};
        return {op.getKey()};
      })
      .Default({});
}

/// Why `attention` cannot rotate these keys while it rotates its queries, or
/// nothing.
static StringRef findObstacle(nn::RotaryOp keys, nn::RotaryOp queries,
                              AttentionOp attention) {
  if (!rotatesTokens(keys, attention.getStart()) ||
      keys.getTable() != queries.getTable())
    return "the keys are rotated by other angles than the queries";
  if (getDim(keys.getInput(), 2) == 0)
    return "there are no keys";
  if (getDim(keys.getInput(), 2) > getDim(queries.getInput(), 2))
    return "the keys have more heads than the queries";
  if (getElementType(keys.getInput()) != getElementType(queries.getInput()))
    return "the keys have another element type than the queries";
  IRRewriter rewriter(attention.getContext());
  if (failed(moveValueDefinitions(rewriter, keys.getInput(), attention)))
    return "the keys follow from the compressed branch";
  return "";
}

/// The rotations of keys that `attention` can do with that of its queries.
static SmallVector<nn::RotaryOp> findKeys(nn::RotaryOp queries,
                                          AttentionOp attention) {
  llvm::SetVector<Operation *> found;
  for (Operation *user : queries.getOutput().getUsers())
    for (Value key : getKeysOf(user, queries.getOutput()))
      if (auto rotation = key.getDefiningOp<nn::RotaryOp>();
          rotation && rotation != queries)
        found.insert(rotation);
  SmallVector<nn::RotaryOp> keys;
  for (Operation *op : found) {
    auto rotation = cast<nn::RotaryOp>(op);
    StringRef obstacle = findObstacle(rotation, queries, attention);
    if (obstacle.empty())
      keys.push_back(rotation);
    else
      reportFusion(rotation, "Rotation", obstacle);
  }
  // Users come in the order in which they were made.
  llvm::sort(keys, [](nn::RotaryOp first, nn::RotaryOp second) {
    return first->isBeforeInBlock(second);
  });
  return keys;
}

static constexpr StringLiteral kReadBefore =
    "what is rotated is read before the compressed branch";

/// Whether the branch has the output as its key or value. The operation that
/// rotates cannot be given it.
static bool isKeyOrValue(nn::RotaryOp rotation, AttentionOp attention) {
  return rotation.getOutput() == attention.getKey() ||
         rotation.getOutput() == attention.getValue();
}

/// Why `attention` cannot do the rotation of keys, among others that it does,
/// or nothing.
static StringRef findReader(nn::RotaryOp rotation, ArrayRef<nn::RotaryOp> keys,
                            AttentionOp attention) {
  auto before = rotation.getInput().getDefiningOp<nn::RotaryOp>();
  if (before && (before.getOutput() == attention.getQuery() ||
                 llvm::is_contained(keys, before)))
    return "the keys are rotated already";
  if (isKeyOrValue(rotation, attention))
    return "the compressed branch reads the rotated keys";
  // Moved operations may read the rotated keys or queries.
  return isReadBefore(rotation, attention) ? StringRef(kReadBefore) : "";
}

bool nsa::fuseRotation(AttentionOp attention) {
  auto queries = attention.getQuery().getDefiningOp<nn::RotaryOp>();
  if (!queries)
    return false;
  if (attention.getAt() || !rotatesTokens(queries, attention.getStart())) {
    reportFusion(queries, "Rotation",
                 "the queries are rotated by other angles "
                 "than those of their positions");
    return false;
  }
  SmallVector<nn::RotaryOp> keys = findKeys(queries, attention);
  SmallVector<nn::RotaryOp> fusible;
  for (nn::RotaryOp rotation : keys) {
    StringRef obstacle = findReader(rotation, keys, attention);
    if (obstacle.empty())
      fusible.push_back(rotation);
    else
      reportFusion(rotation, "Rotation", obstacle);
  }
  keys = fusible;
  if (isReadBefore(queries, attention)) {
    reportFusion(queries, "Rotation", kReadBefore);
    return false;
  }
  if (isKeyOrValue(queries, attention)) {
    reportFusion(queries, "Rotation",
                 "the compressed branch also has the queries as keys");
    return false;
  }
  SmallVector<Value> inputs;
  for (nn::RotaryOp rotation : keys)
    inputs.push_back(rotation.getInput());
  OpBuilder builder(attention);
  auto fused = RotaryAttentionOp::create(
      builder, attention.getLoc(), queries.getInput(), attention.getKey(),
      attention.getValue(), inputs, queries.getTable(), attention.getStart(),
      attention.getVisibility(), attention.getScaleAttr(),
      attention.getSoftcapAttr());
  reportFusion(queries, "Rotation", "");
  attention.getOutput().replaceAllUsesWith(fused.getOutput());
  attention.getLse().replaceAllUsesWith(fused.getLse());
  attention.erase();
  queries.getOutput().replaceAllUsesWith(fused.getRotatedQuery());
  queries.erase();
  for (auto [rotation, rotated] :
       llvm::zip_equal(keys, fused.getRotatedKeys())) {
    reportFusion(rotation, "Rotation", "");
    rotation.getOutput().replaceAllUsesWith(rotated);
    rotation.erase();
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Backward
//===----------------------------------------------------------------------===//

/// The inverse rotation of rows at a distance of `stride`, in sequences that
/// begin at `start`, that is the only reader of `grad`; null if there is none.
static nn::RotaryOp getRotationBack(Value grad, int64_t stride, Value start) {
  auto rotation = getOnlyReader<nn::RotaryOp>(grad);
  if (!rotation || rotation.getInput() != grad || !rotation.getInverse() ||
      rotation.getAt() || rotation.getStart() != start ||
      static_cast<int64_t>(rotation.getStride()) != stride)
    return nullptr;
  return rotation;
}

SmallVector<Operation *>
nsa::findRotationsBack(Value queryGrad, ArrayRef<AttentionBackwardOp> branches,
                       Operation *first) {
  SmallVector<nn::RotaryOp> ofBlocks, ofTokens;
  size_t numTokens = 1;
  AttentionBackwardOp firstBranch = branches.front();
  Value start = firstBranch.getStart();
  if (queryGrad)
    if (nn::RotaryOp rotation = getRotationBack(queryGrad, /*stride=*/1, start))
      ofTokens.push_back(rotation);
  for (AttentionBackwardOp branch : branches) {
    VisibilityAttrInterface visibility = branch.getVisibility();
    bool attendsToTokens = visibility.attendsToTokens();
    numTokens += attendsToTokens;
    if (nn::RotaryOp rotation = getRotationBack(
            branch.getKeyGrad(),
            attendsToTokens ? 1 : visibility.getKeyStride(), start))
      (attendsToTokens ? ofTokens : ofBlocks).push_back(rotation);
  }
  IRRewriter rewriter(first->getContext());
  auto isMovable = [&](nn::RotaryOp rotation) {
    return succeeded(
        moveValueDefinitions(rewriter, rotation.getTable(), first));
  };
  SmallVector<Operation *> found;
  Value table;
  for (nn::RotaryOp rotation : ofBlocks) {
    StringRef obstacle = "";
    if (!isMovable(rotation))
      obstacle = "the angles follow from the gradient";
    else if (table && rotation.getTable() != table)
      obstacle = "the keys of another branch are rotated by other angles";
    reportFusion(rotation, "Rotation", obstacle);
    if (!obstacle.empty())
      continue;
    table = rotation.getTable();
    found.push_back(rotation);
  }
  if (ofTokens.empty())
    return found;
  if (!table)
    table = ofTokens.front().getTable();
  bool haveOneTable = ofTokens.size() == numTokens &&
                      llvm::all_of(ofTokens, [&](nn::RotaryOp rotation) {
                        return rotation.getTable() == table;
                      });
  StringRef obstacle =
      !haveOneTable ? "the gradients of the queries and of all keys are not "
                      "rotated back by the same angles"
      : !isMovable(ofTokens.front()) ? "the angles follow from the gradient"
                                     : "";
  for (nn::RotaryOp rotation : ofTokens)
    reportFusion(rotation, "Rotation", obstacle);
  if (obstacle.empty())
    llvm::append_range(found, ofTokens);
  return found;
}
