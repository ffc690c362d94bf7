//===- FuseRowSums.cpp - one last step of many sums over rows -------------===//

#include "dialects/Interfaces/FusionInterfaces.h"
#include "dialects/NN/NNOps.h"
#include "passes/Graph/FuseKernels.h"

#include "mlir/IR/Remarks.h"

#define DEBUG_TYPE "nsa-fuse"

using namespace mlir;
using namespace nsa;

namespace {
/// A sum over rows that is added to a persistent tensor.
struct RowSum {
  nn::AddOp add;
  OpResult rows;
  Value sum;
};
} // namespace

static void refuse(Operation *op, StringRef reason) {
  auto function = op->getParentOfType<func::FuncOp>();
  remark::missed(op->getLoc(), remark::RemarkOpts::name("RowSum")
                                   .category(DEBUG_TYPE)
                                   .function(function.getName()))
      << remark::reason("{0}", reason);
}

/// The result that one side of `add` is, if that is a sum over rows.
static OpResult getRowSum(Value value) {
  auto summing = dyn_cast_or_null<RowSumOpInterface>(value.getDefiningOp());
  return summing && summing.getRowSum() == value ? summing.getRowSum()
                                                 : OpResult();
}

static std::optional<RowSum> match(nn::AddOp add) {
  for (unsigned index : {0, 1}) {
    OpResult rows = getRowSum(add->getOperand(index));
    if (!rows)
      continue;
    Value sum = add->getOperand(1 - index);
    if (!rows.hasOneUse()) {
      refuse(add, "the sum over rows has other readers");
      return std::nullopt;
    }
    if (!isa<BlockArgument>(sum)) {
      refuse(add, "the other term is no argument");
      return std::nullopt;
    }
    return RowSum{add, rows, sum};
  }
  return std::nullopt;
}

/// How many sums one operation makes: the code of its kernel grows with them,
/// so that larger models are to have more of the same kernel.
static constexpr size_t kMostSums = 8;

/// Replaces the sums by those of one operation.
static void addTogether(OpBuilder &builder, ArrayRef<RowSum> sums,
                        int64_t mostPartialSums) {
  SmallVector<Value> operands, rows;
  for (const RowSum &sum : sums) {
    cast<RowSumOpInterface>(sum.rows.getOwner())
        .makeRowSumPartial(mostPartialSums);
    operands.push_back(sum.sum);
    rows.push_back(sum.rows);
  }
  nn::AddOp first = sums.front().add;
  auto all =
      nn::AccumulateRowsOp::create(builder, first.getLoc(), operands, rows);
  for (auto [sum, output] : llvm::zip_equal(sums, all.getOutputs())) {
    nn::AddOp add = sum.add;
    add.replaceAllUsesWith(output);
    add.erase();
  }
}

unsigned nsa::fuseRowSums(func::FuncOp function, int64_t mostPartialSums) {
  SmallVector<RowSum> found;
  for (auto add : function.getOps<nn::AddOp>())
    if (std::optional<RowSum> sum = match(add))
      found.push_back(*sum);
  if (found.empty())
    return 0;
  Operation *last = found.back().add;
  SmallVector<RowSum> sums;
  for (RowSum &sum : found)
    if (llvm::any_of(sum.add->getUsers(), [&](Operation *user) {
          return user->isBeforeInBlock(last);
        }))
      refuse(sum.add, "it is read before the last sum over rows is there");
    else
      sums.push_back(sum);

  OpBuilder builder(last);
  for (ArrayRef<RowSum> rest = sums; !rest.empty();
       rest = rest.drop_front(std::min(rest.size(), kMostSums)))
    addTogether(builder, rest.take_front(kMostSums), mostPartialSums);
  return sums.size();
}
