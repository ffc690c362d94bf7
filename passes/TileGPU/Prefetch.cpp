//===- Prefetch.cpp - which copies a loop can make ahead ------------------===//

#include "passes/TileGPU/Prefetch.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/TileGPU/GlobalAccesses.h"
#include "passes/TileGPU/RegisterLayout.h"
#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPU/TileUtils.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

int64_t nsa::cuda::getCopyWidth(LoadOp load) {
  auto type = cast<TileType>(load.getType());
  int64_t width = getAccessWidth(load.getRef(), load.getIndices(),
                                 SharedShape::vectorElements);
  bool empty = cast<MemRefType>(load.getRef().getType()).getNumElements() == 0;
  return width < 2 || type.getCols() % width != 0 || empty ? 0 : width;
}

llvm::DenseSet<Value> nsa::cuda::getWrittenArguments(KernelOp kernel) {
  llvm::DenseSet<Value> written;
  kernel.walk([&](StoreOp op) { written.insert(getArgument(op.getRef())); });
  return written;
}

DotOp nsa::cuda::findFirstDot(scf::ForOp loop) {
  for (Operation &op : *loop.getBody()) {
    if (auto dot = dyn_cast<DotOp>(op); dot && isWgmma(dot))
      return dot;
    if (isa<scf::ForOp, DotOp>(op))
      break;
  }
  return {};
}

scf::ForOp nsa::cuda::extendLoop(OpBuilder &b, scf::ForOp loop,
                                 ValueRange more) {
  SmallVector<Value> inits(loop.getInitArgs());
  llvm::append_range(inits, more);
  auto result = scf::ForOp::create(b, loop.getLoc(), loop.getLowerBound(),
                                   loop.getUpperBound(), loop.getStep(), inits);
  for (NamedAttribute attribute : loop->getDiscardableAttrs())
    if (attribute.getName() != kPipelineAttr)
      result->setDiscardableAttr(attribute.getName(), attribute.getValue());
  Block *body = result.getBody();
  body->getOperations().splice(body->end(), loop.getBody()->getOperations());
  for (auto [from, to] :
       llvm::zip(loop.getBody()->getArguments(), body->getArguments()))
    from.replaceAllUsesWith(to);
  for (auto [from, to] : llvm::zip(loop.getResults(), result.getResults()))
    from.replaceAllUsesWith(to);
  return result;
}

/// How many elements of a row or a column a copy can move at once.
static int64_t getLineWidth(LoadOp load) {
  auto type = cast<TileType>(load.getType());
  bool isVector = type.getRows() == 1 && type.getCols() % 4 == 0 &&
                  getAccessWidth(load.getRef(), load.getIndices(), 4) == 4;
  return isVector ? 4 : 1;
}

void nsa::cuda::promoteLine(LoadOp load, int64_t offset) {
  auto type = cast<TileType>(load.getType());
  ImplicitLocOpBuilder b(load.getLoc(), load);
  auto line = AllocOp::create(
      b,
      MemDescType::get({type.getRows(), type.getCols()}, type.getElementType()),
      IntegerAttr(), b.getI64IntegerAttr(offset));
  AsyncCopyOp::create(b, load.getRef(), load.getIndices(), line,
                      /*stage=*/Value(), uint64_t(getLineWidth(load)));
  load.replaceAllUsesWith(
      LocalLoadOp::create(b, type, line, /*stage=*/Value()).getTile());
  load.erase();
}

RegisterLayout nsa::cuda::getLineLayout(Value line) {
  if (isTile(line))
    return RegisterLayout(line);
  for (Operation *user : line.getUsers())
    if (auto read = dyn_cast<LocalLoadOp>(user))
      return RegisterLayout(read.getTile());
  llvm_unreachable("a line that nothing loads");
}

void nsa::cuda::setStage(Value buffer, Value stage) {
  for (Operation *user : buffer.getUsers())
    if (auto view = dyn_cast<LocalViewOp>(user); view && !view.getStage())
      view.getStageMutable().assign(stage);
    else if (auto line = dyn_cast<LocalLoadOp>(user); line && !line.getStage())
      line.getStageMutable().assign(stage);
}

int64_t nsa::cuda::getPlaceBytes(Value target) {
  constexpr int64_t lineAlignment = 128;
  if (auto buffer = dyn_cast<MemDescType>(target.getType());
      buffer && !buffer.isLine())
    return llvm::alignTo(SharedShape(target).bytes(), SharedPool::alignment);
  return llvm::alignTo(4 * getLineLayout(target).lineLength(), lineAlignment);
}

/// Whether an operation is scalars, and loads of memory that the kernel leaves
/// alone.
static bool isSimple(Operation *op, const llvm::DenseSet<Value> &written) {
  return !contains(op, [&](Operation *inner) {
    auto isHeld = [](Value result) {
      return isTile(result) && !isRematerialized(result.getType());
    };
    auto load = dyn_cast<LoadOp>(inner);
    // All threads take part in a vote.
    return isa<AnyOp, StoreOp>(inner) ||
           llvm::any_of(inner->getResults(), isHeld) ||
           (load && written.contains(getArgument(load.getRef())));
  });
}

bool nsa::cuda::addSlice(Operation *scope, ValueRange values,
                         const llvm::DenseSet<Value> &written,
                         llvm::DenseSet<Operation *> &operations) {
  return llvm::all_of(values, [&](Value value) {
    Operation *parent = value.getParentRegion()->getParentOp();
    if (!scope->isAncestor(parent))
      return true;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto loop = dyn_cast<scf::ForOp>(parent);
      return loop ? argument == loop.getInductionVar() : isa<KernelOp>(parent);
    }
    Operation *op = value.getDefiningOp();
    if (operations.contains(op))
      return true;
    if (!isSimple(op, written))
      return false;
    // Operands, and what regions use of the surroundings.
    llvm::SetVector<Value> needed(op->operand_begin(), op->operand_end());
    getUsedValuesDefinedAbove(op->getRegions(), needed);
    bool fits = addSlice(scope, needed.getArrayRef(), written, operations);
    if (fits)
      operations.insert(op);
    return fits;
  });
}

/// Whether a load makes one row or one column of 4-byte elements, which several
/// threads repeat.
static bool loadsLine(LoadOp load) {
  if (!hasMmaLayout(load.getType()))
    return false;
  auto type = cast<TileType>(load.getType());
  return (type.getRows() == 1) != (type.getCols() == 1) &&
         type.getElementType().getIntOrFloatBitWidth() == 32 &&
         cast<MemRefType>(load.getRef().getType()).getNumElements() > 0;
}

Prefetch nsa::cuda::findPrefetch(scf::ForOp loop,
                                 const llvm::DenseSet<Value> &written) {
  Prefetch prefetch;
  // A store may go to the memory of an input.
  if (contains(loop, llvm::IsaPred<StoreOp>))
    return prefetch;
  // Copying ahead in the inner loop hides more latency; stages of an outer one
  // would only take memory.
  bool isOuter =
      llvm::any_of(loop.getBody()->getOps<scf::ForOp>(), [&](scf::ForOp inner) {
        return !findPrefetch(inner, written).empty();
      });
  if (isOuter)
    return prefetch;
  llvm::DenseSet<Operation *> addresses;
  auto isAhead = [&](const ReadAccess &access) {
    llvm::DenseSet<Operation *> own;
    if (written.contains(getArgument(access.ref)) ||
        !addSlice(loop, access.indices, written, own) ||
        !addSlice(loop, access.ref, written, own))
      return false;
    addresses.insert_range(own);
    return true;
  };
  for (Operation &op : *loop.getBody()) {
    if (auto copy = dyn_cast<AsyncCopyOp>(op))
      if (copy.isAsync() && isAhead(copy))
        prefetch.copies.push_back(copy);
    if (auto load = dyn_cast<LoadOp>(op))
      if (!load->use_empty() && loadsLine(load) && isAhead(load))
        prefetch.lines.push_back(load);
  }
  // Lines alone are not worth a barrier.
  if (prefetch.empty())
    return {};
  llvm::stable_sort(prefetch.copies, [](AsyncCopyOp x, AsyncCopyOp y) {
    return x.isLine() < y.isLine();
  });
  for (Operation &op : *loop.getBody())
    if (addresses.contains(&op))
      prefetch.addresses.insert(&op);
  return prefetch;
}
