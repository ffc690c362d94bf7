//===- SumKernels.cpp - kernels that convert and add vectors --------------===//

#include "passes/Host/SumKernels.h"
#include "dialects/Tile/TileBuilder.h"

using namespace mlir;
using namespace nsa;

/// Elements that a program converts, and how many at once.
static constexpr int64_t tileSize = 1024, perProgram = 16 * tileSize;
/// Programs count elements in 32 bits, up to the end of the last one.
static constexpr int64_t mostElements = INT32_MAX - perProgram;

tile::KernelOp SumKernels::create(Location loc, MemRefType from, MemRefType to,
                                  bool adds) {
  int64_t count = from.getNumElements();
  std::string name;
  llvm::raw_string_ostream(name)
      << (adds ? "accumulate_n" : "convert_n") << count << "_"
      << from.getElementType() << "_" << to.getElementType();
  SmallVector<Type> inputs = {from};
  if (adds)
    inputs.push_back(to);
  tile::KernelOp kernel = tile::createKernel(
      module, loc, name, inputs, {to},
      {int32_t(llvm::divideCeil(count, perProgram)), 1, 1},
      [&](tile::TileBuilder &b, ArrayRef<Value> args) {
        tile::Expr start = b.programId(0) * perProgram;
        b.forLoop(start, min(start + perProgram, count), tileSize, {},
                  [&](tile::Expr first, ArrayRef<Value>) -> SmallVector<Value> {
                    Value at = b.range(first, tileSize, 1);
                    Value values = b.load(args[0], {at});
                    if (adds)
                      values = tile::add(b, b.load(args[1], {at}), values);
                    b.store(b.convertTo(values, to.getElementType()),
                            args.back(), {at});
                    return {};
                  });
      });
  int64_t bits = from.getElementTypeBitWidth() +
                 (adds ? 2 : 1) * to.getElementTypeBitWidth();
  kernel->setAttr("bytes",
                  IntegerAttr::get(IntegerType::get(module.getContext(), 64),
                                   bits / 8 * count));
  symbols.insert(kernel);
  return kernel;
}

LogicalResult SumKernels::launch(OpBuilder &builder, Location loc, Value from,
                                 Value to, bool adds) {
  auto source = cast<MemRefType>(from.getType());
  auto target = cast<MemRefType>(to.getType());
  if (source.getNumElements() > mostElements)
    return emitError(loc) << "a kernel would count " << source.getNumElements()
                          << " elements, more than the " << mostElements
                          << " that it can";
  tile::KernelOp &kernel = (adds ? sums : conversions)[{source, target}];
  if (!kernel)
    kernel = create(loc, source, target, adds);
  SmallVector<Value> inputs = {from};
  if (adds)
    inputs.push_back(to);
  rt::LaunchOp::create(builder, loc, FlatSymbolRefAttr::get(kernel), inputs,
                       to);
  return success();
}
