//===- ArgumentAlignment.cpp - where the arguments of kernels lie ---------===//

#include "lib/Target/CUDA/ArgumentAlignment.h"
#include "dialects/RT/RTOps.h"
#include "dialects/Tile/TileOps.h"
#include "mlir/IR/SymbolTable.h"
#include "passes/TileGPU/Passes.h"

using namespace mlir;
using namespace nsa;

/// The largest power of two up to `kTensorAlignment` that divides `bytes`.
static int64_t getAlignment(int64_t bytes) {
  int64_t alignment = kTensorAlignment;
  while (bytes % alignment != 0)
    alignment /= 2;
  return alignment;
}

/// Tensors and buffers lie at multiples of `kTensorAlignment`.
static int64_t getAlignment(Value memory) {
  auto view = memory.getDefiningOp<rt::ViewOp>();
  if (!view)
    return kTensorAlignment;
  int64_t bits =
      cast<MemRefType>(view.getSource().getType()).getElementTypeBitWidth();
  int64_t bytes = static_cast<int64_t>(view.getOffset().value_or(0)) *
                  static_cast<int64_t>(llvm::divideCeil(bits, 8));
  return std::min(getAlignment(bytes), getAlignment(view.getSource()));
}

void nsa::noteArgumentAlignment(ModuleOp module) {
  SymbolTable symbols(module);
  llvm::DenseMap<BlockArgument, int64_t> alignments;
  module.walk([&](rt::LaunchOp launch) {
    auto kernel = symbols.lookup<tile::KernelOp>(launch.getKernel());
    if (!kernel)
      return;
    for (auto [argument, memory] :
         llvm::zip_equal(kernel.getArguments(), launch->getOperands())) {
      int64_t own = getAlignment(memory);
      auto [known, isNew] = alignments.try_emplace(argument, own);
      known->second = std::min(known->second, own);
    }
  });
  Builder builder(module.getContext());
  for (auto kernel : module.getOps<tile::KernelOp>())
    for (BlockArgument argument : kernel.getArguments()) {
      auto known = alignments.find(argument);
      bool isTensor =
          cast<MemRefType>(argument.getType()).getLayout().isIdentity();
      if (known != alignments.end() &&
          !(isTensor && known->second == kTensorAlignment))
        kernel.setArgAttr(argument.getArgNumber(), kAlignmentAttr,
                          builder.getI64IntegerAttr(known->second));
    }
}
