//===- ElementwisePatterns.cpp - maps, selects and votes ------------------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/Patterns.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

namespace {
/// How a value of a map's body changes along a row.
enum class Course {
  Constant,
  /// An integer a * column + b.
  Affine,
  /// A truth value that holds in one interval of columns.
  Interval,
  Other
};

/// Selects of a map's body whose conditions hold in one interval of columns of
/// each row: if they hold in the first and in the last column of a tile, they
/// hold in all. Coordinates do not overflow. And shortcuts that are open to
/// whole rows.
struct Masks {
  SmallVector<arith::SelectOp> selects;
  /// What computes the conditions, in order, and the arguments of the body that
  /// this needs.
  llvm::SetVector<Operation *> operations;
  llvm::SetVector<Value> arguments;
};
} // namespace

static Course getCourseOfInput(Value input) {
  if (cast<TileType>(input.getType()).getCols() == 1)
    return Course::Constant;
  auto range = input.getDefiningOp<RangeOp>();
  return range && range.getAxis() == 1 ? Course::Affine : Course::Other;
}

/// How the result of an operation changes along a row, from its operands.
static Course getCourse(Operation &op, ArrayRef<Course> operands) {
  auto is = [](Course wanted) {
    return [wanted](Course course) { return course == wanted; };
  };
  if (llvm::all_of(operands, is(Course::Constant)))
    return Course::Constant;
  bool areLinear = llvm::none_of(operands, is(Course::Other)) &&
                   llvm::none_of(operands, is(Course::Interval));
  if (areLinear && (isa<arith::AddIOp, arith::SubIOp>(op) ||
                    (isa<arith::MulIOp>(op) &&
                     llvm::is_contained(operands, Course::Constant))))
    return Course::Affine;
  auto compare = dyn_cast<arith::CmpIOp>(op);
  if (compare && areLinear &&
      llvm::is_contained({arith::CmpIPredicate::slt, arith::CmpIPredicate::sle,
                          arith::CmpIPredicate::sgt, arith::CmpIPredicate::sge},
                         compare.getPredicate()))
    return Course::Interval;
  if (isa<arith::AndIOp>(op) && op.getResult(0).getType().isInteger(1) &&
      !llvm::is_contained(operands, Course::Other))
    return Course::Interval;
  return Course::Other;
}

static Masks findMasks(MapOp map) {
  Masks masks;
  Block &body = map.getBody().front();
  // Values from outside of the body are constant.
  llvm::DenseMap<Value, Course> courses;
  for (auto [argument, input] :
       llvm::zip_equal(body.getArguments(), map.getInputs()))
    courses[argument] = getCourseOfInput(input);
  for (Operation &op : body.without_terminator()) {
    auto operands = llvm::map_to_vector(
        op.getOperands(), [&](Value value) { return courses.lookup(value); });
    for (Value result : op.getResults())
      courses[result] = getCourse(op, operands);
  }
  llvm::DenseSet<Operation *> needed;
  auto need = [&](auto &self, Value value) -> void {
    if (value.getParentBlock() != &body)
      return;
    Operation *def = value.getDefiningOp();
    if (!def)
      masks.arguments.insert(value);
    else if (needed.insert(def).second)
      for (Value operand : def->getOperands())
        self(self, operand);
  };
  for (auto select : body.getOps<arith::SelectOp>()) {
    Course course = courses.lookup(select.getCondition());
    if (course == Course::Interval ||
        (course == Course::Constant && select->hasAttr(nsa::kShortcutAttr))) {
      masks.selects.push_back(select);
      need(need, select.getCondition());
    }
  }
  for (Operation &op : body)
    if (needed.contains(&op))
      masks.operations.insert(&op);
  return masks;
}

//===----------------------------------------------------------------------===//
// Maps
//===----------------------------------------------------------------------===//

/// Results that are rounded to 16 bits last: two are rounded at once.
static llvm::SmallBitVector findRounded(MapOp op) {
  llvm::SmallBitVector wide(op.getNumResults());
  for (auto [i, value] : llvm::enumerate(op.getYielded())) {
    auto rounded = value.getDefiningOp<arith::TruncFOp>();
    wide[i] = rounded && rounded.getIn().getType().isF32() &&
              RegisterLayout(op.getResult(i)).isPacked();
  }
  return wide;
}

/// The registers of a map's results, one after another.
static SmallVector<Value> runMap(MapOp op, TileReader &in,
                                 ArrayRef<arith::SelectOp> assumed = {}) {
  RegisterLayout shape(op.getShapeType());
  in.exchange(op.getInputs(), shape);
  llvm::SmallBitVector wide = findRounded(op);
  SmallVector<SmallVector<Value>> results(op.getNumResults(),
                                          SmallVector<Value>(shape.elements()));
  Memo memo;
  IRMapping mapping = in.mapOuter(op);
  // What is read for a column is used at once.
  bool byColumns = llvm::any_of(op.getInputs(), isReadWhereUsed);
  for (int64_t k = 0; k < shape.elements(); ++k) {
    int64_t r = byColumns ? k % shape.rowCount() : k / shape.colCount();
    int64_t c = byColumns ? k / shape.rowCount() : k % shape.colCount();
    TileReader::Element element = in.at(shape, r, c);
    SmallVector<Value> elements;
    for (Value input : op.getInputs())
      elements.push_back(in.read(input, element, memo));
    for (auto [list, value] : llvm::zip_equal(
             results, in.runBody(op, elements, mapping, wide, assumed)))
      list[r * shape.colCount() + c] = value;
  }
  SmallVector<Value> flat;
  for (auto [result, list] : llvm::zip_equal(op.getResults(), results))
    llvm::append_range(flat, pack(in.b, RegisterLayout(result), list));
  return flat;
}

/// True if the masks are all-true for this warp. They hold in an interval of
/// columns, so the first and the last column suffice.
static Value holdsEverywhere(MapOp op, TileReader &in, const Masks &masks) {
  ThreadBuilder &b = in.b;
  RegisterLayout shape(op.getShapeType());
  Value all;
  Memo memo;
  IRMapping mapping = in.mapOuter(op);
  for (int64_t r = 0; r < shape.rowCount(); ++r)
    for (int64_t col : {int64_t(0), shape.cols - 1}) {
      for (Value argument : masks.arguments) {
        unsigned i = cast<BlockArgument>(argument).getArgNumber();
        Value input = op.getInputs()[i];
        // Inputs that change along the columns are ranges.
        Value element =
            cast<TileType>(input.getType()).getCols() == 1
                ? in.read(input, in.at(shape, r, 0), memo)
                : in.evaluate(input, b.rowOf(shape, r), b.i32(col), memo);
        mapping.map(argument, element);
      }
      for (Operation *inner : masks.operations)
        b.clone(*inner, mapping);
      for (arith::SelectOp select : masks.selects)
        all = b.both(all, mapping.lookupOrDefault(select.getCondition()));
    }
  return b.vote(all, NVVM::VoteSyncKind::all);
}

/// Multiplies each row by a factor, unless those of this warp are all one:
/// factors of a running softmax mostly are. Nothing if that is not what the
/// map does.
static std::optional<SmallVector<Value>> scaleRows(MapOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  Block &body = op.getBody().front();
  auto product = dyn_cast<arith::MulFOp>(body.front());
  if (!product || !product.getType().isF32() || op.getNumResults() != 1 ||
      op.getYielded()[0] != product.getResult() || op.getInputs().size() != 2 ||
      RegisterLayout(op.getShapeType()).elements() < 16)
    return std::nullopt;
  // Of the two inputs, not of other numbers.
  if (product.getLhs() == product.getRhs() ||
      !llvm::all_of(product->getOperands(), [&](Value factor) {
        return llvm::is_contained(body.getArguments(), factor);
      }))
    return std::nullopt;
  auto isHeld = [&](Value input) {
    return hasMmaLayout(input.getType()) && !isReadWhereUsed(input);
  };
  Value tile = op.getInputs()[0], factor = op.getInputs()[1];
  if (cast<TileType>(tile.getType()).getCols() == 1)
    std::swap(tile, factor);
  if (tile.getType() != op.getResult(0).getType() || !isHeld(tile) ||
      cast<TileType>(factor.getType()).getCols() != 1 || !isHeld(factor))
    return std::nullopt;

  Value one = b.constant(b.getF32Type(), 1), isOne;
  for (Value element : in.elementsOf(factor))
    isOne = b.both(isOne, arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                                element, one));
  return b.ifElse(
      b.vote(isOne, NVVM::VoteSyncKind::all),
      ValueRange(in.registersOf(tile)).getTypes(),
      [&] { return in.registersOf(tile); }, [&] { return runMap(op, in); });
}

/// Skips masks of tiles on which they are all-true.
static SmallVector<Value> runMasked(MapOp op, TileReader &in) {
  if (auto scaled = scaleRows(op, in))
    return *scaled;
  Masks masks = findMasks(op);
  if (masks.selects.empty() ||
      RegisterLayout(op.getShapeType()).elements() < 16)
    return runMap(op, in);
  SmallVector<Type> types;
  for (Value result : op.getResults())
    types.append(RegisterLayout(result).registers(),
                 RegisterLayout(result).registerType());
  return in.b.ifElse(
      holdsEverywhere(op, in, masks), types,
      [&] { return runMap(op, in, masks.selects); },
      [&] { return runMap(op, in); });
}

Results nsa::cuda::splitRegisters(ValueRange tiles, ValueRange all) {
  Results registers;
  for (Value tile : tiles) {
    size_t count = RegisterLayout(tile).registers();
    registers.push_back(llvm::to_vector(all.take_front(count)));
    all = all.drop_front(count);
  }
  return registers;
}

static Results lowerMap(MapOp op, TileReader &in) {
  if (isReadWhereUsed(op.getResult(0)))
    return llvm::map_to_vector(
        op.getResults(), [&](Value result) { return getUnused(in.b, result); });
  bool isMma = hasMmaLayout(op.getShapeType());
  return splitRegisters(op.getResults(),
                        isMma ? runMasked(op, in) : runMap(op, in));
}

//===----------------------------------------------------------------------===//
// Selects, votes and branches
//===----------------------------------------------------------------------===//

/// Canonicalisation makes these of branches that compute nothing.
static Results lowerSelect(arith::SelectOp op, TileReader &in) {
  Value condition = in.scalar(op.getCondition());
  SmallVector<Value> result;
  for (auto [yes, no] : llvm::zip_equal(in.registersOf(op.getTrueValue()),
                                        in.registersOf(op.getFalseValue())))
    result.push_back(in.b.select(condition, yes, no));
  return {std::move(result)};
}

/// Whether an element that this thread has of a tile is true.
static Value someElement(Value tile, TileReader &in) {
  ThreadBuilder &b = in.b;
  Value some = b.constant(b.getI1Type(), 0);
  RegisterLayout layout(tile);
  for (auto [i, value] : llvm::enumerate(in.elementsOf(tile))) {
    Value exists = b.hasElement(layout, int64_t(i) / layout.colCount(),
                                int64_t(i) % layout.colCount());
    some = b.createOrFold<arith::OrIOp>(some, b.both(value, exists));
  }
  return some;
}

/// All threads vote at a barrier.
static Results lowerAny(AnyOp op, TileReader &in) {
  return {{tile_gpu::AnyThreadOp::create(in.b, in.b.getI1Type(),
                                         someElement(op.getInput(), in))}};
}

/// The warp votes as soon as the rows are there, before it waits at a barrier
/// before the branch. Tiles become registers where the branch does.
static Results lowerWarpIf(tile_gpu::WarpIfOp op, TileReader &in) {
  auto votes = [&] {
    OpBuilder::InsertionGuard guard(in.b);
    in.b.setInsertionPointAfterValue(op.getRows());
    return in.b.vote(someElement(op.getRows(), in), NVVM::VoteSyncKind::any);
  };
  Value own = votes();
  auto branch = scf::IfOp::create(in.b, op.getResultTypes(), own);
  for (auto [from, to] : llvm::zip(op->getRegions(), branch->getRegions()))
    in.moveRegion(from, to);
  return llvm::map_to_vector(branch.getResults(), [](Value result) {
    return SmallVector<Value>{result};
  });
}

static Results lowerYield(tile_gpu::YieldOp op, TileReader &in) {
  scf::YieldOp::create(in.b, op.getOperands());
  return {};
}

/// The registers of one that loops carry; other users compute its elements.
template <typename OpTy>
static Results lowerCreation(OpTy op, TileReader &in) {
  return {in.registersOf(op.getResult())};
}

static Results lowerProgramId(ProgramIdOp op, TileReader &in) {
  return {{in.b.blockId(op.getAxis())}};
}

void nsa::cuda::populateElementwisePatterns(TilePatterns &patterns) {
  patterns.add(lowerMap, lowerSelect, lowerAny, lowerWarpIf, lowerYield,
               lowerCreation<SplatOp>, lowerCreation<RangeOp>, lowerProgramId);
}
