//===- TileToCPU.cpp - lower tile kernels to loops over vectors -----------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "passes/TileToCPU/CpuEmitter.h"
#include "passes/TileToCPU/Passes.h"

namespace nsa {
#define GEN_PASS_DEF_NSATILETOCPU
#include "passes/TileToCPU/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

/// Whether the CPU has code for an operation of a kernel, types aside.
static bool isKnown(Operation *op) {
  if (isa<TileDialect>(op->getDialect()))
    return !isa<LaunchOp>(op);
  if (isa<scf::ForOp, scf::IfOp, scf::YieldOp>(op))
    return true;
  // On tiles, only the choice between two of them, which canonicalisation
  // makes of branches.
  bool usesTiles = llvm::any_of(
      llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()),
      [](Type type) { return isa<TileType>(type); });
  if (usesTiles)
    return isa<arith::SelectOp>(op) && op->getOperand(0).getType().isInteger(1);
  return isa<arith::ArithDialect, math::MathDialect>(op->getDialect());
}

/// Refuses what the CPU has no code for.
static LogicalResult verifySupported(Operation *op) {
  if (!op->getDialect() || !isKnown(op))
    return op->emitOpError("has no lowering to the CPU");
  for (Type type : op->getResultTypes())
    if (auto tile = dyn_cast<TileType>(type); tile && tile.getLayout())
      return op->emitOpError("makes a tile of layout ")
             << tile.getLayout() << ", which only GPUs have";
  auto types =
      llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes());
  bool isArithmetic =
      isa<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
      !isa<arith::ExtFOp, arith::TruncFOp, arith::ConstantOp, arith::SelectOp>(
          op);
  if (!isArithmetic)
    return success();
  for (Type type : types)
    if (nsa::cpu::isHalf(type))
      return op->emitOpError("computes on ")
             << type << "; convert to f32 first";
  return success();
}

/// A map that converts or copies a tile.
static Value createConversion(OpBuilder &builder, Location loc, Value tile,
                              Type elementType) {
  auto type = cast<TileType>(tile.getType());
  auto map =
      MapOp::create(builder, loc, type.withElementType(elementType), tile);
  OpBuilder::InsertionGuard guard(builder);
  Block *body =
      builder.createBlock(&map.getBody(), {}, type.getElementType(), loc);
  Value element = body->getArgument(0);
  if (type.getElementType() != elementType)
    element = arith::ExtFOp::create(builder, loc, elementType, element);
  YieldOp::create(builder, loc, element);
  return map.getResult(0);
}

/// Converts 16-bit operands of dots to f32 where they are defined, once for
/// all dots.
static void widenProducts(KernelOp kernel) {
  llvm::DenseMap<Value, Value> widened;
  OpBuilder builder(kernel.getContext());
  kernel.walk([&](DotOp dot) {
    for (OpOperand *operand : {&dot.getAMutable(), &dot.getBMutable()}) {
      Value tile = operand->get();
      if (cast<TileType>(tile.getType()).getElementType().isF32())
        continue;
      Value &wide = widened[tile];
      if (!wide) {
        builder.setInsertionPointAfterValue(tile);
        wide = createConversion(builder, tile.getLoc(), tile,
                                builder.getF32Type());
      }
      operand->set(wide);
    }
  });
}

/// Canonicalisation makes selections of tiles from branches that compute
/// nothing: back to branches, which copy what was chosen.
static void branchOnSelectedTiles(KernelOp kernel) {
  kernel.walk([&](arith::SelectOp select) {
    if (!isa<TileType>(select.getType()))
      return;
    OpBuilder builder(select);
    auto branch = scf::IfOp::create(
        builder, select.getLoc(), select.getCondition(),
        [&](OpBuilder &inner, Location loc) {
          scf::YieldOp::create(inner, loc, select.getTrueValue());
        },
        [&](OpBuilder &inner, Location loc) {
          scf::YieldOp::create(inner, loc, select.getFalseValue());
        });
    select.replaceAllUsesWith(branch.getResult(0));
    select.erase();
  });
}

/// The first operation after `op` in its block that uses it, itself or inside.
static Operation *firstUser(Operation *op) {
  Operation *first = nullptr;
  for (Operation *user : op->getUsers()) {
    Operation *ancestor = op->getBlock()->findAncestorOpInBlock(*user);
    if (ancestor && (!first || ancestor->isBeforeInBlock(first)))
      first = ancestor;
  }
  return first;
}

/// Moves loads, with the conversions of what they load, down to their first
/// use where nothing is stored on the way: fewer tiles are alive at a time.
static void sinkLoads(KernelOp kernel) {
  kernel.walk([](Block *block) {
    for (Operation &op :
         llvm::make_early_inc_range(llvm::reverse(block->getOperations()))) {
      auto map = dyn_cast<MapOp>(op);
      bool converts = map && map.getInputs().size() == 1 &&
                      map.getInputs()[0].getDefiningOp<LoadOp>() &&
                      map.getInputs()[0].hasOneUse();
      if (!converts && !isa<LoadOp>(op))
        continue;
      Operation *user = firstUser(&op), *next = op.getNextNode();
      while (user && next != user && !nsa::cpu::touchesMemory(next, true))
        next = next->getNextNode();
      if (user && next == user)
        op.moveBefore(user);
    }
  });
}

/// The product of a sum or difference, if nothing else reads it.
static arith::MulFOp findProduct(Operation *sum, unsigned operand) {
  auto product = sum->getOperand(operand).getDefiningOp<arith::MulFOp>();
  return product && product->hasOneUse() &&
                 product->getBlock() == sum->getBlock()
             ? product
             : arith::MulFOp();
}

/// Makes one operation of a sum and a product that only the sum reads, inside
/// of maps. What LLVM contracts depends on the operations around and on how
/// many lanes are used: equal maps in two kernels would round differently.
/// Exponents stay: the difference of equal scores is 0, however large they are.
static void contractProducts(KernelOp kernel) {
  kernel.walk([](Operation *sum) {
    if (!isa<arith::AddFOp, arith::SubFOp>(sum) ||
        !isa<MapOp>(sum->getParentOp()) || !sum->getResult(0).getType().isF32())
      return;
    if (llvm::any_of(sum->getUsers(), llvm::IsaPred<math::ExpOp, math::Exp2Op>))
      return;
    unsigned place = findProduct(sum, 0) ? 0 : 1;
    arith::MulFOp product = findProduct(sum, place);
    if (!product)
      return;
    OpBuilder builder(sum);
    auto negate = [&](Value value) -> Value {
      return arith::NegFOp::create(builder, sum->getLoc(), value);
    };
    Value x = product.getLhs(), other = sum->getOperand(1 - place);
    if (isa<arith::SubFOp>(sum))
      (place == 0 ? other : x) = negate(place == 0 ? other : x);
    auto fma =
        math::FmaOp::create(builder, sum->getLoc(), x, product.getRhs(), other);
    sum->getResult(0).replaceAllUsesWith(fma);
    sum->erase();
    product.erase();
  });
}

/// Lanes would compute both values.
static void leaveShortcuts(KernelOp kernel) {
  kernel.walk([](arith::SelectOp select) {
    if (select->hasAttr(nsa::kShortcutAttr)) {
      select.replaceAllUsesWith(select.getFalseValue());
      select.erase();
    }
  });
}

/// A loop that yields its own carried tile at another position reads it after
/// the other's buffer was written: yield a copy instead.
static void copyExchangedTiles(KernelOp kernel) {
  OpBuilder builder(kernel.getContext());
  kernel.walk([&](scf::ForOp loop) {
    Operation *yield = loop.getBody()->getTerminator();
    builder.setInsertionPoint(yield);
    for (OpOperand &operand : yield->getOpOperands()) {
      auto argument = dyn_cast<BlockArgument>(operand.get());
      auto type = dyn_cast<TileType>(operand.get().getType());
      if (!argument || !type || argument.getOwner() != loop.getBody() ||
          argument == loop.getRegionIterArg(operand.getOperandNumber()))
        continue;
      operand.set(createConversion(builder, yield->getLoc(), argument,
                                   type.getElementType()));
    }
  });
}

LogicalResult nsa::cpu::prepareKernel(KernelOp kernel) {
  auto result = kernel.walk<WalkOrder::PreOrder>([](Operation *op) {
    return failed(verifySupported(op)) ? WalkResult::interrupt()
                                       : WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  branchOnSelectedTiles(kernel);
  widenProducts(kernel);
  copyExchangedTiles(kernel);
  sinkLoads(kernel);
  leaveShortcuts(kernel);
  contractProducts(kernel);
  return success();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct TileToCPU : nsa::impl::NSATileToCPUBase<TileToCPU> {
  using NSATileToCPUBase::NSATileToCPUBase;

  void runOnOperation() override {
    if (vectorWidth != 4 && vectorWidth != 8 && vectorWidth != 16) {
      getOperation().emitError("vector width ")
          << vectorWidth.getValue() << " is none of 4, 8 and 16";
      return signalPassFailure();
    }
    for (auto kernel :
         llvm::make_early_inc_range(getOperation().getOps<KernelOp>())) {
      if (failed(nsa::cpu::prepareKernel(kernel)) ||
          failed(nsa::cpu::CpuEmitter(kernel, vectorWidth).emit()))
        return signalPassFailure();
      kernel.erase();
    }
  }
};
} // namespace
