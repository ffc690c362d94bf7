//===- CompressGradients.cpp - reduce gradients in bf16 -------------------===//

#include "dialects/RT/RTOps.h"
#include "dialects/Tile/TileBuilder.h"
#include "passes/Host/Passes.h"

#include "mlir/IR/SymbolTable.h"

#define DEBUG_TYPE "nsa-compress-gradients"

namespace nsa {
#define GEN_PASS_DEF_COMPRESSGRADIENTS
#include "passes/Host/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

/// Elements that a program converts, and how many at once.
static constexpr int64_t tileSize = 1024, perProgram = 16 * tileSize;
/// Programs count elements in 32 bits, up to the end of the last one.
static constexpr int64_t mostElements = INT32_MAX - perProgram;

namespace {
struct CompressGradientsPass
    : nsa::impl::CompressGradientsBase<CompressGradientsPass> {
  using CompressGradientsBase::CompressGradientsBase;

  void runOnOperation() override;

private:
  bool isGradient(Value memory);
  void narrow(rt::CollectiveStartOp start, rt::CollectiveDoneOp done);
  void launchConversion(OpBuilder &builder, Location loc, Value from, Value to);

  std::optional<SymbolTable> symbols;
  /// By source and target type.
  DenseMap<std::pair<Type, Type>, tile::KernelOp> conversions;
};
} // namespace

bool CompressGradientsPass::isGradient(Value memory) {
  SmallVector<FlatSymbolRefAttr> names = rt::getTensorNames(memory);
  return !names.empty() && llvm::all_of(names, [&](FlatSymbolRefAttr name) {
    return symbols->lookup<rt::TensorOp>(name.getAttr()).getRole() ==
           rt::TensorRole::Gradient;
  });
}

/// Launches the kernel that converts all elements.
void CompressGradientsPass::launchConversion(OpBuilder &builder, Location loc,
                                             Value from, Value to) {
  auto source = cast<MemRefType>(from.getType());
  auto target = cast<MemRefType>(to.getType());
  tile::KernelOp &kernel = conversions[{source, target}];
  int64_t count = source.getNumElements();
  if (!kernel) {
    std::string name;
    llvm::raw_string_ostream(name)
        << "convert_n" << count << "_" << source.getElementType() << "_"
        << target.getElementType();
    kernel = tile::createKernel(
        getOperation(), loc, name, {source}, {target},
        {int32_t(llvm::divideCeil(count, perProgram)), 1, 1},
        [&](tile::TileBuilder &b, ArrayRef<Value> args) {
          tile::Expr start = b.programId(0) * perProgram;
          b.forLoop(
              start, min(start + perProgram, count), tileSize, {},
              [&](tile::Expr first, ArrayRef<Value>) -> SmallVector<Value> {
                Value at = b.range(first, tileSize, 1);
                Value values = b.load(args[0], {at});
                b.store(b.convertTo(values, target.getElementType()), args[1],
                        {at});
                return {};
              });
        });
    kernel->setAttr("bytes", builder.getI64IntegerAttr(6 * count));
    symbols->insert(kernel);
  }
  rt::LaunchOp::create(builder, loc, FlatSymbolRefAttr::get(kernel),
                       ValueRange{from}, ValueRange{to});
}

void CompressGradientsPass::narrow(rt::CollectiveStartOp start,
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
  Value buffer = rt::BufferOp::create(builder, start.getLoc(), narrowType,
                                      rt::SliceAttr(), rt::LiveRangeAttr());
  launchConversion(builder, start.getLoc(), flat, buffer);
  rt::CollectiveStartOp::create(builder, start.getLoc(), start.getKind(),
                                buffer, start.getRanksAttr());
  builder.setInsertionPoint(done);
  rt::CollectiveDoneOp::create(builder, done.getLoc(), buffer);
  launchConversion(builder, done.getLoc(), buffer, flat);
  start.erase();
  done.erase();
  ++numNarrowed;
}

void CompressGradientsPass::runOnOperation() {
  symbols.emplace(getOperation());
  conversions.clear();
  SmallVector<std::pair<rt::CollectiveStartOp, rt::CollectiveDoneOp>>
      reductions;
  getOperation().walk([&](rt::CollectiveStartOp start) {
    if (!isGradient(start.getMemory()))
      return;
    int64_t count =
        cast<MemRefType>(start.getMemory().getType()).getNumElements();
    if (count > mostElements) {
      start.emitOpError("has ") << count << " elements, more than the "
                                << mostElements << " that can become bf16";
      return signalPassFailure();
    }
    for (Operation *user : start.getMemory().getUsers())
      if (auto done = dyn_cast<rt::CollectiveDoneOp>(user))
        reductions.emplace_back(start, done);
  });
  for (auto [start, done] : reductions)
    narrow(start, done);
}
