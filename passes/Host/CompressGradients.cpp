//===- CompressGradients.cpp - reduce gradients in bf16 -------------------===//

#include "dialects/RT/RTOps.h"
#include "passes/Host/Passes.h"
#include "passes/Host/SumKernels.h"

#include "mlir/IR/SymbolTable.h"

#define DEBUG_TYPE "nsa-compress-gradients"

namespace nsa {
#define GEN_PASS_DEF_COMPRESSGRADIENTS
#include "passes/Host/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
struct CompressGradientsPass
    : nsa::impl::CompressGradientsBase<CompressGradientsPass> {
  using CompressGradientsBase::CompressGradientsBase;

  void runOnOperation() override;

private:
  bool isGradient(rt::CollectiveStartOp start);
  LogicalResult widenParts(Value memory, Value narrow);
  LogicalResult narrow(rt::CollectiveStartOp start, rt::CollectiveDoneOp done);

  std::optional<SymbolTable> symbols;
  std::optional<SumKernels> kernels;
};
} // namespace

bool CompressGradientsPass::isGradient(rt::CollectiveStartOp start) {
  // Where ranks keep only parts, the whole has no name.
  if (start.getKind() == rt::Collective::ReduceScatter)
    return true;
  SmallVector<FlatSymbolRefAttr> names = rt::getTensorNames(start.getMemory());
  return !names.empty() && llvm::all_of(names, [&](FlatSymbolRefAttr name) {
    return symbols->lookup<rt::TensorOp>(name.getAttr()).getRole() ==
           rt::TensorRole::Gradient;
  });
}

/// Widens what a rank takes of gradients that it does not keep.
LogicalResult CompressGradientsPass::widenParts(Value memory, Value narrow) {
  for (Operation *user : llvm::make_early_inc_range(memory.getUsers())) {
    auto take = dyn_cast<rt::SliceShardOp>(user);
    if (!take)
      continue;
    OpBuilder builder(take);
    auto type = cast<MemRefType>(take.getPart().getType());
    Value own = rt::BufferOp::create(
        builder, take.getLoc(),
        MemRefType::get(type.getShape(), builder.getBF16Type()));
    rt::SliceShardOp::create(builder, take.getLoc(), narrow, own,
                             take.getShard());
    if (failed(kernels->launch(builder, take.getLoc(), own, take.getPart())))
      return failure();
    take.erase();
  }
  return success();
}

LogicalResult CompressGradientsPass::narrow(rt::CollectiveStartOp start,
                                            rt::CollectiveDoneOp done) {
  Value memory = start.getMemory();
  auto type = cast<MemRefType>(memory.getType());
  OpBuilder builder(start);
  auto narrowType =
      MemRefType::get({type.getNumElements()}, builder.getBF16Type());
  Value flat = memory;
  if (type.getRank() != 1)
    flat = rt::ViewOp::create(
        builder, start.getLoc(),
        MemRefType::get({type.getNumElements()}, type.getElementType()),
        memory);
  Value buffer = rt::BufferOp::create(builder, start.getLoc(), narrowType);
  if (failed(kernels->launch(builder, start.getLoc(), flat, buffer)))
    return failure();
  rt::CollectiveStartOp::create(builder, start.getLoc(), start.getKind(),
                                buffer, start.getRanksAttr());
  builder.setInsertionPoint(done);
  rt::CollectiveDoneOp::create(builder, done.getLoc(), buffer);
  bool isNamed = !flat.getDefiningOp<rt::BufferOp>();
  if (isNamed ? failed(kernels->launch(builder, done.getLoc(), buffer, flat))
              : failed(widenParts(flat, buffer)))
    return failure();
  start.erase();
  done.erase();
  ++numNarrowed;
  return success();
}

void CompressGradientsPass::runOnOperation() {
  symbols.emplace(getOperation());
  kernels.emplace(getOperation());
  SmallVector<std::pair<rt::CollectiveStartOp, rt::CollectiveDoneOp>>
      reductions;
  getOperation().walk([&](rt::CollectiveStartOp start) {
    if (!isGradient(start))
      return;
    for (Operation *user : start.getMemory().getUsers())
      if (auto done = dyn_cast<rt::CollectiveDoneOp>(user))
        reductions.emplace_back(start, done);
  });
  for (auto [start, done] : reductions)
    if (failed(narrow(start, done)))
      return signalPassFailure();
}
