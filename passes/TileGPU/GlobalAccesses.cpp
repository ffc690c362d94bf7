//===- GlobalAccesses.cpp - how operations access arguments ---------------===//

#include "passes/TileGPU/GlobalAccesses.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/Interfaces/Extents.h"
#include "dialects/RT/RTOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "passes/TileGPU/RegisterLayout.h"
#include "passes/TileGPU/Scratch.h"
#include "passes/TileGPU/TileUtils.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

//===----------------------------------------------------------------------===//
// Elements that can be moved together
//===----------------------------------------------------------------------===//

/// The largest power of two up to `most` that divides `number`.
static int64_t dividing(int64_t number, int64_t most) {
  while (number % most != 0)
    most /= 2;
  return most;
}

int64_t nsa::cuda::getDivisor(Value value, int64_t most) {
  if (most == 1)
    return 1;
  APInt number;
  if (matchPattern(value, m_ConstantInt(&number)))
    return dividing(number.getSExtValue(), most);
  if (auto loop =
          dyn_cast_or_null<scf::ForOp>(value.getParentBlock()->getParentOp());
      loop && value == loop.getInductionVar())
    return std::min(getDivisor(loop.getLowerBound(), most),
                    getDivisor(loop.getStep(), most));
  Operation *def = value.getDefiningOp();
  if (auto iteration = dyn_cast_or_null<IterationOp>(def))
    return getDivisor(iteration.getValue(), most);
  if (isa_and_nonnull<arith::MulIOp>(def))
    return std::min(most, getDivisor(def->getOperand(0), most) *
                              getDivisor(def->getOperand(1), most));
  if (isa_and_nonnull<arith::AddIOp, arith::SubIOp, arith::MinSIOp,
                      arith::MaxSIOp>(def))
    return std::min(getDivisor(def->getOperand(0), most),
                    getDivisor(def->getOperand(1), most));
  if (auto select = dyn_cast_or_null<arith::SelectOp>(def))
    return std::min(getDivisor(select.getTrueValue(), most),
                    getDivisor(select.getFalseValue(), most));
  return 1;
}

int64_t nsa::cuda::getAlignment(Value ref) {
  auto argument = cast<BlockArgument>(nsa::cuda::getArgument(ref));
  auto kernel = cast<KernelOp>(argument.getOwner()->getParentOp());
  if (auto known = kernel.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(),
                                                        kAlignmentAttr))
    return std::min(known.getInt(), kTensorAlignment);
  // Where a part of wider rows begins is known to the launch only.
  auto type = cast<MemRefType>(argument.getType());
  return type.getLayout().isIdentity()
             ? kTensorAlignment
             : int64_t(type.getElementTypeBitWidth() / 8);
}

std::optional<ReadAccess> nsa::cuda::getReadAccess(Operation *op) {
  if (auto load = dyn_cast<LoadOp>(op))
    return ReadAccess(load);
  if (auto copy = dyn_cast<AsyncCopyOp>(op))
    return ReadAccess(copy);
  return std::nullopt;
}

Value nsa::cuda::getArgument(Value ref) {
  while (auto view = ref.getDefiningOp<ViewOp>())
    ref = view.getRef();
  return ref;
}

int64_t nsa::cuda::getMostTogether(Value ref, int64_t cols) {
  int64_t bits = cast<MemRefType>(ref.getType()).getElementTypeBitWidth();
  return bits < 16 ? 1 : dividing(cols, 128 / bits);
}

int64_t nsa::cuda::getAccessWidth(Value ref, ValueRange indices, int64_t most) {
  auto isConstantAlongColumns = [](Value index) {
    auto tile = dyn_cast<TileType>(index.getType());
    return !tile || tile.getCols() == 1;
  };
  if (most == 1 || indices.empty())
    return 1;
  auto columns = indices.back().getDefiningOp<RangeOp>();
  if (!columns || columns.getAxis() != 1 || columns.getStep() != 1 ||
      !llvm::all_of(indices.drop_back(), isConstantAlongColumns))
    return 1;
  auto type = cast<MemRefType>(ref.getType());
  ExtentTable extents =
      ExtentTable::of(ref.getParentRegion()->getParentOfType<KernelOp>());
  SmallVector<Extent> strides = extents.getStrides(type);
  if (int64_t(strides.back()) != 1 || type.getElementTypeBitWidth() < 16)
    return 1;
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  most = dividing(std::max<int64_t>(getAlignment(ref) / bytes, 1), most);
  most = dividing(getKnownDivisor(extents.find(type.getShape().back())), most);
  for (const Extent &stride : ArrayRef(strides).drop_back())
    most = dividing(getKnownDivisor(stride), most);
  return getDivisor(columns.getStart(), most);
}

//===----------------------------------------------------------------------===//
// Reads and writes
//===----------------------------------------------------------------------===//

/// Whether several threads may access an element. All read a scalar; several
/// may read an element of a vector.
static bool isRepeated(Type type) {
  auto tile = dyn_cast<TileType>(type);
  if (!tile)
    return true;
  return isa_and_nonnull<BlockedAttr>(tile.getLayout())
             ? RegisterLayout(tile).isRepeated()
             : tile.getRows() == 1 || tile.getCols() == 1;
}

static GlobalAccess getRead(const ReadAccess &read) {
  return {getArgument(read.ref), /*isWrite=*/false,
          isRepeated(read.type) ? nullptr : read.op};
}

/// The loads of what is computed where it is used.
static void addEvaluated(Value value, SmallVectorImpl<GlobalAccess> &accesses) {
  Operation *def = value.getDefiningOp();
  if (!def || !isa<TileType>(value.getType()) || !isVirtual(value))
    return;
  if (auto load = dyn_cast<LoadOp>(def))
    accesses.push_back(getRead(load));
  for (Value operand : def->getOperands())
    addEvaluated(operand, accesses);
}

/// Arguments that loads by TMA, and copies, read whose bytes arrive at these
/// barriers.
static void addTmaLoads(Value barriers,
                        SmallVectorImpl<GlobalAccess> &accesses) {
  for (Operation *user : barriers.getUsers()) {
    auto load = dyn_cast<TmaLoadOp>(user);
    if (auto copy = dyn_cast<AsyncCopyOp>(user))
      accesses.push_back(
          {getArgument(copy.getRef()), /*isWrite=*/false, nullptr});
    if (!load)
      continue;
    auto kernel = load->getParentOfType<KernelOp>();
    auto maps = kernel->getAttrOfType<ArrayAttr>(nsa::kTensorMapsAttr);
    if (!maps || load.getMap() >= maps.size())
      continue;
    auto map = cast<rt::TensorMapAttr>(maps[load.getMap()]);
    accesses.push_back({kernel.getArgument(map.getArgument()),
                        /*isWrite=*/false, nullptr});
  }
}

SmallVector<GlobalAccess> nsa::cuda::getGlobalAccesses(Operation *op) {
  SmallVector<GlobalAccess> accesses;
  if (op->getNumResults() > 0 && isa<TileType>(op->getResult(0).getType()) &&
      isVirtual(op->getResult(0)))
    return accesses;
  if (std::optional<ReadAccess> read = getReadAccess(op))
    accesses.push_back(getRead(*read));
  if (auto wait = dyn_cast<MBarrierWaitOp>(op))
    addTmaLoads(wait.getBarriers(), accesses);
  for (Value operand : op->getOperands())
    addEvaluated(operand, accesses);
  auto store = dyn_cast<StoreOp>(op);
  if (store && cast<MemRefType>(store.getRef().getType()).getNumElements() > 0)
    accesses.push_back({getArgument(store.getRef()), /*isWrite=*/true, store});
  return accesses;
}

//===----------------------------------------------------------------------===//
// Owners
//===----------------------------------------------------------------------===//

/// What says which thread accesses which element: the indices, and the tile;
/// null for a scalar.
static std::pair<OperandRange, TileType> getDistribution(Operation *op) {
  if (std::optional<ReadAccess> read = getReadAccess(op))
    return {read->indices, dyn_cast<TileType>(read->type)};
  auto store = cast<StoreOp>(op);
  return {store.getIndices(), dyn_cast<TileType>(store.getValue().getType())};
}

/// One thread stores a scalar, always the same one.
bool nsa::cuda::haveSameOwners(const GlobalAccess &x, const GlobalAccess &y) {
  if (!x.owned || !y.owned)
    return false;
  auto [indices, tile] = getDistribution(x.owned);
  auto [otherIndices, otherTile] = getDistribution(y.owned);
  if (!tile || !otherTile)
    return !tile && !otherTile;
  return tile.getLayout() == otherTile.getLayout() &&
         llvm::equal(indices, otherIndices);
}
