//===- ProducerPlan.cpp - what a warpgroup of its own copies --------------===//

#include "passes/TileGPU/ProducerPlan.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/Interfaces/Extents.h"
#include "nsa/Artifact/TensorMap.h"
#include "passes/TileGPU/GlobalAccesses.h"
#include "passes/TileGPU/RegisterLayout.h"
#include "passes/TileGPU/Scratch.h"
#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPU/TileUtils.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// TMA tiles
//===----------------------------------------------------------------------===//

static constexpr auto unit = int64_t(tensorMapAlignment);

/// The axis of a tile along which an index goes in steps of one; -1 for the
/// same index everywhere, nothing for other indices.
static std::optional<int64_t> getAxis(Value index) {
  if (!isa<TileType>(index.getType()))
    return -1;
  auto range = index.getDefiningOp<RangeOp>();
  if (!range || range.getStep() != 1)
    return std::nullopt;
  return range.getAxis();
}

static Value getStart(Value index) {
  if (auto range = index.getDefiningOp<RangeOp>())
    return range.getStart();
  return index;
}

namespace {
/// The elements of a box along the rows and the columns of a tile.
struct Box {
  int64_t rows, cols;
  /// The axis of the tile that lies along the innermost dimension.
  int64_t innerAxis;
  unsigned swizzle;
};
} // namespace

/// The box of a shared tile: a swizzle atom column of its columns.
static std::optional<Box> getAtomColumn(Value buffer) {
  SharedShape shape(buffer);
  if (shape.rows != shape.paddedRows() || shape.cols != shape.paddedCols())
    return std::nullopt;
  return Box{shape.rows, shape.atomVectors() * SharedShape::vectorElements, 1,
             unsigned(shape.rowBytes())};
}

/// The box of a row or a column of 4-byte elements.
static std::optional<Box> getLine(Value line) {
  RegisterLayout layout = getLineLayout(line);
  bool isRow = layout.rows == 1;
  int64_t length = isRow ? layout.cols : layout.rows;
  if (layout.element.getIntOrFloatBitWidth() != 32 ||
      length != layout.lineLength())
    return std::nullopt;
  return Box{layout.rows, layout.cols, isRow ? 1 : 0, 0};
}

/// Bytes from element to element along each dimension but the innermost.
static std::optional<SmallVector<int64_t>>
getStrides(MemRefType type, const ExtentTable &extents) {
  SmallVector<Extent> strides = extents.getStrides(type);
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  if (int64_t(strides.back()) != 1)
    return std::nullopt;
  SmallVector<int64_t> result;
  for (const Extent &stride : llvm::reverse(ArrayRef(strides).drop_back())) {
    if (int64_t(stride) <= 0 || getKnownDivisor(stride) * bytes % unit != 0)
      return std::nullopt;
    result.push_back(int64_t(stride) * bytes);
  }
  return result;
}

/// How many elements a box has along each dimension of an access, innermost
/// first.
static std::optional<SmallVector<int64_t>> getExtents(ValueRange indices,
                                                      const Box &box) {
  SmallVector<int64_t> extents;
  bool hasRows = box.rows == 1, hasCols = box.cols == 1;
  for (Value index : llvm::reverse(indices)) {
    std::optional<int64_t> axis = getAxis(index);
    if (!axis)
      return std::nullopt;
    bool isFirst = extents.empty();
    if (isFirst != (*axis == box.innerAxis))
      return std::nullopt;
    // A diagonal is no box.
    if ((*axis == 0 && hasRows) || (*axis == 1 && hasCols))
      return std::nullopt;
    extents.push_back(*axis < 0 ? 1 : *axis == 0 ? box.rows : box.cols);
    hasRows |= *axis == 0;
    hasCols |= *axis == 1;
  }
  return hasRows && hasCols ? std::optional(extents) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Gathered rows
//===----------------------------------------------------------------------===//

namespace {
/// What the elements of a group of rows, or columns, in sequence are: their
/// numbers, which begin at a multiple of the group's size, the same, each one
/// more than the one before, or neither.
enum class Order : uint8_t { Number, Same, Next, Other };
} // namespace

static Order getOrder(Value value, int64_t group, int64_t axis);

static Order getOrderOfResult(Operation *op, int64_t group, int64_t axis) {
  if (!isa<LoadOp, SplatOp>(op) && !isa<arith::ArithDialect>(op->getDialect()))
    return Order::Other;
  auto orders = llvm::map_to_vector(op->getOperands(), [&](Value operand) {
    return getOrder(operand, group, axis);
  });
  if (llvm::all_equal(orders) && (orders.empty() || orders[0] == Order::Same))
    return Order::Same;
  if (orders.size() != 2)
    return Order::Other;
  if (isa<arith::AddIOp>(op) && llvm::is_contained(orders, Order::Same))
    return llvm::is_contained(orders, Order::Other) ? Order::Other
                                                    : Order::Next;
  std::optional<int64_t> divisor = getConstantIntValue(op->getOperand(1));
  if (orders[0] != Order::Number || !divisor || *divisor % group != 0)
    return Order::Other;
  return isa<arith::DivSIOp>(op)   ? Order::Same
         : isa<arith::RemSIOp>(op) ? Order::Next
                                   : Order::Other;
}

static Order getOrder(Value value, int64_t group, int64_t axis) {
  auto map = dyn_cast<MapOp>(value.getParentRegion()->getParentOp());
  if (!map && !isa<TileType>(value.getType()))
    return Order::Same;
  if (auto argument = dyn_cast<BlockArgument>(value))
    return map ? getOrder(map.getInputs()[argument.getArgNumber()], group, axis)
               : Order::Other;
  Operation *def = value.getDefiningOp();
  if (auto inner = dyn_cast<MapOp>(def))
    return getOrder(inner.getYielded()[cast<OpResult>(value).getResultNumber()],
                    group, axis);
  auto range = dyn_cast<RangeOp>(def);
  if (!range)
    return getOrderOfResult(def, group, axis);
  std::optional<int64_t> start = getConstantIntValue(range.getStart());
  if (range.getAxis() != axis)
    return Order::Same;
  return range.getStep() == 1 && start && *start % group == 0 ? Order::Number
                                                              : Order::Other;
}

bool nsa::cuda::isSameInGroups(Value tile, int64_t group) {
  int64_t axis = cast<TileType>(tile.getType()).getRows() == 1;
  return getOrder(tile, group, axis) == Order::Same;
}

/// The rows of the largest groups that are a box each, of one lane: those whose
/// indices are the same but for one dimension, along which they are in
/// sequence. Sets the extents of such a box, innermost first.
static int64_t findRowGroup(ValueRange indices, const Box &box,
                            SmallVectorImpl<int64_t> &extents) {
  if (getAxis(indices.back()) != 1)
    return 0;
  for (int64_t group = box.rows / 2; group > 1; --group) {
    auto orders = llvm::map_to_vector(indices.drop_back(), [&](Value index) {
      return getOrder(index, group, /*axis=*/0);
    });
    if (box.rows % group != 0 || box.rows / group > kWarp ||
        llvm::count(orders, Order::Next) != 1 ||
        llvm::count(orders, Order::Same) + 1 != int64_t(orders.size()))
      continue;
    extents.push_back(box.cols);
    for (Order order : llvm::reverse(orders))
      extents.push_back(order == Order::Next ? group : 1);
    return group;
  }
  return 0;
}

bool nsa::cuda::asksToGather(KernelOp kernel) {
  return bool(kernel->getAttrOfType<IntegerAttr>(kProducerAttr));
}

/// Measured on an H200, where a warp takes some 40 ns for each box: four take
/// 0.48 of the time of one where a stage has 128 boxes, 0.92 to 0.96 where it
/// has 32, 0.95 to 1.01 where it has 16, and 1.03 where it has 8.
int64_t ProducerPlan::countWarps() const {
  constexpr int64_t mostOfWarp = 16;
  int64_t most = 0;
  for (const auto &loop : loops) {
    int64_t boxes = 0;
    for (const TensorCopy &copy : loop.second)
      if (copy.rows != 0)
        boxes += copy.columns * cast<TileType>(copy.access.type).getRows() /
                 copy.rows;
    most = std::max(most, boxes);
  }
  return most > mostOfWarp ? kProducerThreads / kWarp : most != 0;
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

/// A copy to a buffer, or the load of a line of a tile in the MMA layout, as
/// TMA tiles. Nothing if it needs more than ranges along one or two dimensions
/// of an argument, padding, or offsets that are no multiples of 16 bytes.
static std::optional<TensorCopy> findTensorCopy(const ReadAccess &access) {
  auto argument = dyn_cast<BlockArgument>(access.ref);
  auto type = cast<MemRefType>(access.ref.getType());
  auto tile = dyn_cast<TileType>(access.type);
  if (!argument || !tile || type.getRank() < 1 ||
      type.getRank() > int64_t(maxTensorMapRank) ||
      type.getNumElements() == 0 ||
      getAlignment(access.ref) % kTensorAlignment != 0)
    return std::nullopt;
  std::optional<Box> box =
      isShared(tile) ? getAtomColumn(access.target) : getLine(access.target);
  auto kernel = access.op->getParentOfType<KernelOp>();
  std::optional<SmallVector<int64_t>> strides =
      getStrides(type, ExtentTable::of(kernel));
  if (!box || !strides)
    return std::nullopt;
  std::optional<SmallVector<int64_t>> extents =
      getExtents(access.indices, *box);
  int64_t rows = 0;
  if (!extents && isShared(tile) && asksToGather(kernel))
    rows = findRowGroup(access.indices, *box, extents.emplace());
  if (!extents || extents->empty() || llvm::any_of(*extents, [](int64_t n) {
        return n > int64_t(maxTensorMapBox);
      }))
    return std::nullopt;
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  if (extents->front() * bytes % unit != 0)
    return std::nullopt;
  SmallVector<Value> start(llvm::reverse(access.indices));
  for (Value &coordinate :
       MutableArrayRef(start).take_front(rows ? 1 : start.size()))
    coordinate = getStart(coordinate);
  // An H200 traps on other offsets.
  if (getDivisor(start.front(), unit / bytes) != unit / bytes)
    return std::nullopt;
  SmallVector<int64_t> shape(llvm::reverse(type.getShape()));
  Builder b(type.getContext());
  auto map = rt::TensorMapAttr::get(
      type.getContext(), argument.getArgNumber(), type.getElementType(),
      b.getDenseI64ArrayAttr(shape), b.getDenseI64ArrayAttr(*strides),
      b.getDenseI64ArrayAttr(*extents), box->swizzle);
  // A line is one box.
  int64_t boxes = isShared(tile) ? tile.getCols() / box->cols : 1;
  return TensorCopy{access, map,  start, boxes * box->rows * box->cols * bytes,
                    rows,   boxes};
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

/// Of pipelines; warps that skip stages run further apart, and gathered rows
/// take longer to arrive.
static constexpr int64_t maxStages = 4, maxStagesPerWarp = 6;
/// A multiprocessor's shared memory, of which a block takes this much more than
/// it asks for; and what barriers take.
static constexpr int64_t allShared = 228 << 10, ownShared = 1 << 10,
                         forBarriers = 1 << 10;

namespace {
class Planner {
public:
  Planner(KernelOp kernel, const llvm::DenseSet<Value> &written)
      : kernel(kernel), written(written) {}

  void add(scf::ForOp loop);
  void addStationary();
  void layOut();

  ProducerPlan plan;

private:
  bool addOperations(ValueRange values);
  void noteMap(TensorCopy &copy);

  KernelOp kernel;
  const llvm::DenseSet<Value> &written;
};
} // namespace

int64_t nsa::cuda::countSums(scf::ForOp loop) {
  int64_t most = 0;
  for (; loop; loop = loop->getParentOfType<scf::ForOp>()) {
    int64_t count = 0;
    for (Value sum : loop.getRegionIterArgs())
      if (hasMmaLayout(sum.getType()))
        count += RegisterLayout(sum).registers();
    most = std::max(most, count);
  }
  return most;
}

Block &nsa::cuda::getBlockOfRoles(KernelOp kernel) {
  Block &block = kernel.getBody().front();
  auto last = dyn_cast_or_null<scf::IfOp>(block.getTerminator()->getPrevNode());
  bool isSplit = last && last.getElseRegion().empty() && asksToGather(kernel);
  return isSplit ? *last.thenBlock() : block;
}

/// The loops around `loop` in a block; nothing if there is something else.
static std::optional<SmallVector<scf::ForOp>> getLoopsAround(scf::ForOp loop,
                                                             Block &block) {
  SmallVector<scf::ForOp> loops;
  for (Operation *inner = loop; inner->getBlock() != &block;) {
    auto outer = dyn_cast<scf::ForOp>(inner->getParentOp());
    if (!outer)
      return std::nullopt;
    loops.push_back(outer);
    inner = outer;
  }
  return loops;
}

/// Lets the producer compute values, if they depend on no branch or loop.
bool Planner::addOperations(ValueRange values) {
  llvm::DenseSet<Operation *> operations;
  if (!addSlice(kernel, values, written, operations) ||
      llvm::any_of(operations, llvm::IsaPred<scf::ForOp, scf::IfOp>))
    return false;
  plan.operations.insert_range(operations);
  return true;
}

void Planner::add(scf::ForOp loop) {
  Prefetch prefetch = findPrefetch(loop, written);
  auto around = getLoopsAround(loop, getBlockOfRoles(kernel));
  if (prefetch.empty() || !around)
    return;
  SmallVector<TensorCopy> copies;
  bool gathers = false;
  auto addLine = [&](const ReadAccess &line) {
    if (std::optional<TensorCopy> copy = findTensorCopy(line))
      copies.push_back(*copy);
    else if (gathers && !isShared(line.type))
      copies.push_back({line, {}, llvm::to_vector(line.indices), 0});
    else
      return false;
    return true;
  };
  for (tile_gpu::AsyncCopyOp op : prefetch.copies) {
    if (!addLine(op))
      return;
    gathers |= copies.back().rows != 0;
  }
  // Threads load a line themselves if need be.
  for (LoadOp load : prefetch.lines)
    addLine(load);
  SmallVector<Value> needed;
  for (const TensorCopy &copy : copies)
    llvm::append_range(needed, copy.start);
  SmallVector<scf::ForOp> nest = *around;
  nest.push_back(loop);
  for (scf::ForOp trips : nest)
    needed.append(
        {trips.getLowerBound(), trips.getUpperBound(), trips.getStep()});
  if (!addOperations(needed))
    return;
  plan.around.insert_range(*around);
  plan.loops.try_emplace(loop, std::move(copies));
}

/// The tiles that the block itself loads.
void Planner::addStationary() {
  for (auto copy : getBlockOfRoles(kernel).getOps<tile_gpu::AsyncCopyOp>()) {
    if (written.contains(getArgument(copy.getRef())))
      continue;
    std::optional<TensorCopy> own = findTensorCopy(copy);
    if (own && addOperations(own->start))
      plan.stationary.push_back(*own);
  }
}

/// The most that tiles outside of the pipeline take.
static int64_t countOtherBytes(const ProducerPlan &plan, KernelOp kernel) {
  int64_t bytes = 0, exchanged = 0;
  kernel.walk([&](Operation *op) {
    const auto *known = plan.loops.find(op->getParentOp());
    bool isCopied = known != plan.loops.end() &&
                    llvm::any_of(known->second, [&](const TensorCopy &copy) {
                      return copy.access.op == op;
                    });
    exchanged = std::max(exchanged, getScratchBytes(op));
    if (isCopied)
      return;
    if (auto copy = dyn_cast<tile_gpu::AsyncCopyOp>(op))
      bytes += getPlaceBytes(copy.getBuffer());
    if (auto store = dyn_cast<tile_gpu::LocalStoreOp>(op))
      bytes += getPlaceBytes(store.getBuffer());
  });
  return bytes + exchanged + forBarriers;
}

void Planner::noteMap(TensorCopy &copy) {
  if (!copy.map)
    return;
  auto *known = llvm::find(plan.maps, copy.map);
  copy.mapNumber = known - plan.maps.begin();
  if (known == plan.maps.end())
    plan.maps.push_back(copy.map);
}

/// What a loop copies lies together in a stage.
void Planner::layOut() {
  llvm::for_each(plan.stationary, [&](TensorCopy &copy) { noteMap(copy); });
  for (auto &loop : plan.loops) {
    int64_t bytes = 0;
    for (TensorCopy &copy : loop.second) {
      copy.offset = bytes;
      bytes += getPlaceBytes(copy.access.target);
      noteMap(copy);
    }
    plan.stageBytes = std::max<int64_t>(
        plan.stageBytes, llvm::alignTo(bytes, SharedPool::alignment));
  }
}

bool nsa::cuda::chooseStages(ProducerPlan &plan, KernelOp kernel,
                             int64_t threads, int64_t sharedLimit) {
  // Two blocks of one warpgroup each, or one of more: registers are enough for
  // as many.
  plan.blocks = threads == 32 * warpsOfGroup ? 2 : 1;
  auto asked = kernel->getAttrOfType<IntegerAttr>(kProducerAttr);
  if (asked)
    plan.blocks = asked.getInt();
  int64_t others = countOtherBytes(plan, kernel);
  auto countStages = [&] {
    int64_t own = std::min(sharedLimit, allShared / plan.blocks - ownShared);
    return plan.stageBytes ? (own - others) / plan.stageBytes : 0;
  };
  if (countStages() < 2 && !asked)
    plan.blocks = 1;
  bool passesBy = llvm::any_of(plan.loops, [](const auto &loop) {
    Block &body = loop.first->getRegion(0).front();
    return llvm::any_of(body, llvm::IsaPred<tile_gpu::WarpIfOp>);
  });
  int64_t most = passesBy || asked ? maxStagesPerWarp : maxStages;
  if (auto own = kernel->getAttrOfType<IntegerAttr>(kStagesAttr))
    most = std::min(most, own.getInt());
  plan.depth = std::min(countStages(), most);
  return plan.depth >= 2;
}

ProducerPlan
nsa::cuda::planProducer(KernelOp kernel, const llvm::DenseSet<Value> &written,
                        function_ref<bool(scf::ForOp)> multiplies) {
  // With a limit on registers there are none to reallocate.
  if (kernel->hasAttr(kMinBlocksAttr))
    return {};
  Planner planner(kernel, written);
  kernel.walk<WalkOrder::PreOrder>([&](scf::ForOp loop) {
    if (multiplies(loop))
      planner.add(loop);
  });
  if (planner.plan.empty())
    return {};
  planner.addStationary();
  planner.layOut();
  return std::move(planner.plan);
}
