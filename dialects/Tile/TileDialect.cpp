//===- TileDialect.cpp - the tile dialect and its type --------------------===//

#include "dialects/Tile/TileDialect.h"
#include "dialects/Tile/TileOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/TensorEncoding.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa::tile;

#include "dialects/Tile/TileDialect.cpp.inc"
#include "dialects/Tile/TileEnums.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/Tile/TileTypes.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Tile/TileAttrs.cpp.inc"

void TileDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/Tile/TileTypes.cpp.inc"
      >();
}

void TileDialect::initialize() {
  registerTypes();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Tile/TileAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Tile/TileOps.cpp.inc"
      >();
}

Type TileType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type elementType;
  Attribute layout;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() ||
      parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(elementType) ||
      (succeeded(parser.parseOptionalComma()) &&
       parser.parseAttribute(layout)) ||
      parser.parseGreater())
    return {};
  return TileType::getChecked([&] { return parser.emitError(loc); },
                              parser.getContext(), shape, elementType, layout);
}

void TileType::print(AsmPrinter &printer) const {
  printer << '<';
  printer.printDimensionList(getShape());
  printer << 'x' << getElementType();
  if (getLayout())
    printer << ", " << getLayout();
  printer << '>';
}

LogicalResult TileType::verify(function_ref<InFlightDiagnostic()> emitError,
                               ArrayRef<int64_t> shape, Type elementType,
                               Attribute layout) {
  if (shape.empty() || shape.size() > 2)
    return emitError() << "a tile has 1 or 2 dimensions, not " << shape.size();
  for (int64_t size : shape)
    if (size < 1)
      return emitError() << "dimension " << size
                         << " of a tile must be at least 1";
  if (!elementType.isF32() && !elementType.isBF16() && !elementType.isF16() &&
      !elementType.isInteger(32) && !elementType.isInteger(1))
    return emitError() << "element type " << elementType
                       << " of a tile must be f32, bf16, f16, i32 or i1";
  if (auto encoding = dyn_cast_or_null<VerifiableTensorEncoding>(layout))
    return encoding.verifyEncoding(shape, elementType, emitError);
  if (layout && !isa<MmaLayoutAttr, SharedAttr, RematerializedAttr>(layout))
    return emitError() << "layout " << layout
                       << " of a tile must be #tile.mma, #tile.shared or "
                          "#tile.rematerialized";
  if (isa_and_nonnull<SharedAttr>(layout)) {
    if (!elementType.isBF16() && !elementType.isF16())
      return emitError() << "#tile.shared holds bf16 or f16, not "
                         << elementType;
    if (shape.size() != 2)
      return emitError() << "#tile.shared needs 2 dimensions, not "
                         << shape.size();
  }
  return success();
}

LogicalResult
MmaLayoutAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                      int64_t warps) {
  if (warps < 1 || warps > 32)
    return emitError() << "a tile in the MMA layout lies in 1 to 32 warps, not "
                       << warps;
  return success();
}

//===----------------------------------------------------------------------===//
// Attributes with the prefix of the dialect: there are none
//===----------------------------------------------------------------------===//

LogicalResult TileDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attribute) {
  return refuseAttribute(op, attribute);
}

LogicalResult TileDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                    unsigned,
                                                    NamedAttribute attribute) {
  return refuseAttribute(op, attribute);
}

LogicalResult
TileDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned,
                                         NamedAttribute attribute) {
  return refuseAttribute(op, attribute);
}
