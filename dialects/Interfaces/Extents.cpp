//===- Extents.cpp - sizes that are known at the call ---------------------===//

#include "dialects/Interfaces/Extents.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/Interfaces/RowLayout.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/AffineExprVisitor.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;
using namespace nsa;

//===----------------------------------------------------------------------===//
// Extent
//===----------------------------------------------------------------------===//

static AffineMap getMapOf(ArrayRef<AffineExpr> results, MLIRContext *context) {
  SmallVector<AffineExpr> different;
  for (AffineExpr result : results)
    if (!llvm::is_contained(different, result))
      different.push_back(result);
  return AffineMap::get(0, kNumExtents, different, context);
}

Extent Extent::argument(int64_t number, unsigned index, MLIRContext *context) {
  return {number, getMapOf(getAffineSymbolExpr(index, context), context)};
}

AffineMap Extent::getMap(MLIRContext *context) const {
  return map ? map : getMapOf(getAffineConstantExpr(number, context), context);
}

int64_t Extent::evaluate(ArrayRef<int64_t> extents) const {
  if (!map)
    return number;
  MLIRContext *context = map.getContext();
  SmallVector<AffineExpr> symbols =
      llvm::map_to_vector(extents, [&](int64_t extent) {
        return getAffineConstantExpr(extent, context);
      });
  int64_t most = std::numeric_limits<int64_t>::min();
  for (AffineExpr result : map.getResults())
    most = std::max(
        most,
        cast<AffineConstantExpr>(result.replaceSymbols(symbols)).getValue());
  return most;
}

/// The results of `extent`, changed by a function that grows with them.
static Extent mapResults(int64_t number, const Extent &extent,
                         function_ref<AffineExpr(AffineExpr)> change) {
  if (extent.isConstant())
    return number;
  AffineMap map = extent.getMap();
  return {number, getMapOf(llvm::map_to_vector(map.getResults(), change),
                           map.getContext())};
}

Extent nsa::addExtents(const Extent &lhs, int64_t rhs) {
  return mapResults(static_cast<int64_t>(lhs) + rhs, lhs,
                    [&](AffineExpr result) { return result + rhs; });
}

/// Both, combined by a function that grows with each.
static Extent combine(int64_t number, const Extent &lhs, const Extent &rhs,
                      function_ref<AffineExpr(AffineExpr, AffineExpr)> change) {
  if (lhs.isConstant() && rhs.isConstant())
    return number;
  MLIRContext *context = (lhs.isConstant() ? rhs : lhs).getMap().getContext();
  SmallVector<AffineExpr> results;
  for (AffineExpr x : lhs.getMap(context).getResults())
    for (AffineExpr y : rhs.getMap(context).getResults())
      results.push_back(change(x, y));
  return {number, getMapOf(results, context)};
}

Extent nsa::operator+(const Extent &lhs, const Extent &rhs) {
  return combine(int64_t(lhs) + int64_t(rhs), lhs, rhs,
                 [](AffineExpr x, AffineExpr y) { return x + y; });
}

Extent nsa::multiplyExtents(const Extent &lhs, const Extent &rhs) {
  return combine(int64_t(lhs) * int64_t(rhs), lhs, rhs,
                 [](AffineExpr x, AffineExpr y) { return x * y; });
}

Extent nsa::ceilDiv(const Extent &lhs, int64_t divisor) {
  return mapResults(llvm::divideCeilSigned(static_cast<int64_t>(lhs), divisor),
                    lhs,
                    [&](AffineExpr result) { return result.ceilDiv(divisor); });
}

Extent nsa::floorDiv(const Extent &lhs, int64_t divisor) {
  return mapResults(
      llvm::divideFloorSigned(static_cast<int64_t>(lhs), divisor), lhs,
      [&](AffineExpr result) { return result.floorDiv(divisor); });
}

Extent nsa::atLeast(const Extent &size, int64_t least) {
  int64_t number = std::max(static_cast<int64_t>(size), least);
  if (size.isConstant())
    return number;
  AffineMap map = size.getMap();
  SmallVector<AffineExpr> results(map.getResults());
  results.push_back(getAffineConstantExpr(least, map.getContext()));
  return {number, getMapOf(results, map.getContext())};
}

bool nsa::isExtentMap(Attribute attribute) {
  auto map = dyn_cast_or_null<AffineMapAttr>(attribute);
  if (!map || map.getValue().getNumDims() != 0 ||
      map.getValue().getNumSymbols() != kNumExtents ||
      map.getValue().getNumResults() == 0)
    return false;
  bool isWritten = true;
  map.getValue().walkExprs([&](AffineExpr expr) {
    bool divides = expr.getKind() == AffineExprKind::FloorDiv ||
                   expr.getKind() == AffineExprKind::CeilDiv;
    auto divisor = divides ? dyn_cast<AffineConstantExpr>(
                                 cast<AffineBinaryOpExpr>(expr).getRHS())
                           : AffineConstantExpr();
    isWritten = isWritten && expr.getKind() != AffineExprKind::Mod &&
                (!divides || (divisor && divisor.getValue() > 0));
  });
  return isWritten;
}

int64_t nsa::getKnownDivisor(const Extent &size) {
  if (size.isConstant())
    return static_cast<int64_t>(size);
  int64_t divisor = 0;
  for (AffineExpr result : size.getMap().getResults())
    divisor = std::gcd(divisor, result.getLargestKnownDivisor());
  return divisor;
}

//===----------------------------------------------------------------------===//
// ExtentTable
//===----------------------------------------------------------------------===//

ExtentTable ExtentTable::of(Operation *op) {
  ExtentTable table;
  ArrayAttr list;
  for (; op && !list; op = op->getParentOp())
    list = op->getAttrOfType<ArrayAttr>(kExtentsAttr);
  if (!list)
    return table;
  for (auto entry : list.getAsRange<ArrayAttr>())
    table.entries.push_back({cast<IntegerAttr>(entry[0]).getInt(),
                             cast<AffineMapAttr>(entry[1]).getValue()});
  return table;
}

bool ExtentTable::isTable(Attribute attribute) {
  auto list = dyn_cast<ArrayAttr>(attribute);
  return list && llvm::all_of(list, [](Attribute element) {
           auto entry = dyn_cast<ArrayAttr>(element);
           return entry && entry.size() == 2 && isa<IntegerAttr>(entry[0]) &&
                  isExtentMap(entry[1]);
         });
}

Extent ExtentTable::find(int64_t number) const {
  for (const Extent &entry : entries)
    if (static_cast<int64_t>(entry) == number)
      return entry;
  return number;
}

bool ExtentTable::add(const Extent &extent) {
  if (extent.isConstant())
    return true;
  Extent known = find(static_cast<int64_t>(extent));
  if (known.isConstant())
    entries.push_back(extent);
  return known.isConstant() || known.getMap() == extent.getMap();
}

void ExtentTable::writeTo(Operation *op) const {
  op->removeAttr(kExtentsAttr);
  if (entries.empty())
    return;
  Builder builder(op->getContext());
  SmallVector<Attribute> list;
  for (const Extent &entry : entries)
    list.push_back(builder.getArrayAttr(
        {builder.getI64IntegerAttr(static_cast<int64_t>(entry)),
         AffineMapAttr::get(entry.getMap())}));
  op->setAttr(kExtentsAttr, builder.getArrayAttr(list));
}

SmallVector<Extent> ExtentTable::getShape(ShapedType type) const {
  return llvm::map_to_vector(type.getShape(),
                             [&](int64_t number) { return find(number); });
}

Extent ExtentTable::getNumElements(ShapedType type) const {
  Extent elements = 1;
  for (const Extent &extent : getShape(type))
    elements = elements * extent;
  return elements;
}

bool ExtentTable::isNeededBy(ShapedType type) const {
  return llvm::any_of(type.getShape(), [&](int64_t number) {
    return !find(number).isConstant();
  });
}

SmallVector<Extent> ExtentTable::getStrides(MemRefType type) const {
  SmallVector<Extent> shape = getShape(type), strides(shape.size());
  RowLayout layout = *getRowLayout(type);
  bool isDense = layout.width == layout.pitch;
  Extent stride = 1;
  bool inRow = !isDense;
  for (size_t d = shape.size(); d-- > 0;) {
    if (inRow && static_cast<int64_t>(stride) == layout.width &&
        static_cast<int64_t>(shape[d]) != 1) {
      inRow = false;
      stride = find(layout.pitch);
    }
    strides[d] = stride;
    stride = stride * shape[d];
  }
  return strides;
}

Extent ExtentTable::getElementSpan(MemRefType type) const {
  Extent elements = getNumElements(type);
  RowLayout layout = *getRowLayout(type);
  if (layout.width == layout.pitch || layout.width == 0)
    return elements;
  SmallVector<Extent> shape = getShape(type);
  Extent rows = 1, width = 1;
  for (const Extent &extent : llvm::reverse(shape)) {
    if (int64_t(width) < layout.width)
      width = width * extent;
    else
      rows = rows * extent;
  }
  // There may be no rows.
  return atLeast((rows - 1) * find(layout.pitch) + width, 0);
}

//===----------------------------------------------------------------------===//
// Values and kernels
//===----------------------------------------------------------------------===//

SmallVector<int64_t> nsa::getNumbers(ArrayRef<Extent> shape) {
  return llvm::map_to_vector(
      shape, [](const Extent &extent) { return static_cast<int64_t>(extent); });
}

std::string nsa::formatExtent(const Extent &extent) {
  return extent.isConstant() ? std::to_string(int64_t(extent)) : "N";
}

Extent nsa::getExtent(Value tensor, unsigned index) {
  Operation *op = tensor.getDefiningOp();
  if (!op)
    op = cast<BlockArgument>(tensor).getOwner()->getParentOp();
  return ExtentTable::of(op).find(
      cast<ShapedType>(tensor.getType()).getDimSize(index));
}

Extent nsa::getGridExtent(Operation *kernel, unsigned axis) {
  auto maps = kernel->getAttrOfType<ArrayAttr>(kGridExtentsAttr);
  int64_t number =
      cast<DenseI32ArrayAttr>(*kernel->getInherentAttr("grid"))[axis];
  if (!maps)
    return number;
  AffineMap map = cast<AffineMapAttr>(maps[axis]).getValue();
  return map.isConstant() ? Extent(number) : Extent(number, map);
}

void nsa::setGridExtents(Operation *kernel, ArrayRef<Extent> grid) {
  if (llvm::all_of(grid, [](const Extent &e) { return e.isConstant(); }))
    return;
  SmallVector<AffineMap> maps;
  for (const Extent &extent : grid)
    maps.push_back(extent.getMap(kernel->getContext()));
  kernel->setAttr(kGridExtentsAttr,
                  Builder(kernel->getContext()).getAffineMapArrayAttr(maps));
}

namespace {
// The visitor calls these in place of its own.
// NOLINTBEGIN(bugprone-derived-method-shadowing-base-method)
/// Makes arithmetic of an expression.
class Expander : public AffineExprVisitor<Expander, Value> {
public:
  Expander(OpBuilder &builder, Location loc, ValueRange symbols)
      : builder(builder), loc(loc), symbols(symbols) {}

  Value visitConstantExpr(AffineConstantExpr expr) {
    Type type = symbols[0].getType();
    return arith::ConstantOp::create(
        builder, loc, builder.getIntegerAttr(type, expr.getValue()));
  }
  Value visitSymbolExpr(AffineSymbolExpr expr) {
    return symbols[expr.getPosition()];
  }
  Value visitDimExpr(AffineDimExpr) { llvm_unreachable("extents are symbols"); }
  Value visitAddExpr(AffineBinaryOpExpr expr) {
    return create<arith::AddIOp>(expr);
  }
  Value visitMulExpr(AffineBinaryOpExpr expr) {
    return create<arith::MulIOp>(expr);
  }
  Value visitModExpr(AffineBinaryOpExpr) {
    llvm_unreachable("extents have no remainders");
  }
  /// Rounds down by a division of what is made not negative by selection.
  Value visitFloorDivExpr(AffineBinaryOpExpr expr) {
    return create<arith::FloorDivSIOp>(expr);
  }
  Value visitCeilDivExpr(AffineBinaryOpExpr expr) {
    return create<arith::CeilDivSIOp>(expr);
  }

private:
  template <typename OpT>
  Value create(AffineBinaryOpExpr expr) {
    Value lhs = visit(expr.getLHS()), rhs = visit(expr.getRHS());
    return builder.createOrFold<OpT>(loc, lhs, rhs);
  }

  OpBuilder &builder;
  Location loc;
  ValueRange symbols;
};
// NOLINTEND(bugprone-derived-method-shadowing-base-method)
} // namespace

Value nsa::expandExtent(OpBuilder &builder, Location loc, const Extent &extent,
                        ValueRange extents) {
  AffineMap map = extent.getMap(builder.getContext());
  Expander expander(builder, loc, extents);
  Value most;
  for (AffineExpr result : map.getResults()) {
    Value value = expander.visit(result);
    most =
        most ? builder.createOrFold<arith::MaxSIOp>(loc, most, value) : value;
  }
  return most;
}
