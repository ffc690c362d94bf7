//===- TileOps.cpp - operations on tiles ----------------------------------===//

#include "dialects/Tile/TileOps.h"
#include "dialects/Interfaces/Extents.h"
#include "dialects/Interfaces/RowLayout.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/TensorEncoding.h"
#include "mlir/Interfaces/FunctionImplementation.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// Prints a shape as `64x32`.
static std::string formatShape(ArrayRef<int64_t> shape) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::interleave(shape, os, "x");
  return text;
}

/// The element type of a tile, or a scalar itself.
static Type elementTypeOf(Type type) {
  auto tile = dyn_cast<TileType>(type);
  return tile ? tile.getElementType() : type;
}

/// The layout of a tile; null for none and for scalars.
static Attribute layoutOf(Type type) {
  auto tile = dyn_cast<TileType>(type);
  return tile ? tile.getLayout() : Attribute();
}

static std::string formatLayout(Attribute layout) {
  if (!layout)
    return "no layout";
  std::string text;
  llvm::raw_string_ostream(text) << layout;
  return text;
}

/// Whether a layout is a target's own.
static bool isOfTarget(Attribute layout) {
  return isa_and_nonnull<VerifiableTensorEncoding>(layout);
}

/// Whether a tile is wherever the target puts it, said or not.
static bool isPlain(Attribute layout) { return !layout || isOfTarget(layout); }

/// Whether two layouts are one for all that operations know.
static bool areAlike(Attribute x, Attribute y) {
  return x == y || (isOfTarget(x) && isOfTarget(y));
}

/// The layout of a result that has another shape than an operand in `layout`:
/// what the target makes of that is not inferred.
static Attribute inferLayout(Attribute layout) {
  return isPlain(layout) ? Attribute() : layout;
}

/// Whether a result may have the type where `inferred` is expected.
static bool isInstanceOf(Type type, Type inferred) {
  auto tile = dyn_cast<TileType>(type);
  return type == inferred ||
         (tile && isPlain(tile.getLayout()) && tile.withLayout({}) == inferred);
}

/// An operand of an operation whose result is in `layout`: in the same or
/// nowhere.
static bool mixesWith(Type operand, Attribute layout) {
  Attribute own = layoutOf(operand);
  return !isa<TileType>(operand) || areAlike(own, layout) ||
         isa_and_nonnull<RematerializedAttr>(own);
}

/// For operations that know nothing of layouts.
static LogicalResult verifyNoLayout(Operation *op) {
  for (Type type : op->getOperandTypes())
    if (Attribute layout = layoutOf(type); !isPlain(layout))
      return op->emitOpError("needs tiles without layout, not in ") << layout;
  return success();
}

/// Parses `(type, type)`, also without a type.
static ParseResult parseTypeList(OpAsmParser &parser,
                                 SmallVectorImpl<Type> &types) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, [&] {
    return parser.parseType(types.emplace_back());
  });
}

static void printTypeList(OpAsmPrinter &printer, Operation *, TypeRange types) {
  printer << '(' << types << ')';
}

//===----------------------------------------------------------------------===//
// KernelOp
//===----------------------------------------------------------------------===//

void KernelOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                     FunctionType type, ArrayRef<int32_t> grid,
                     int32_t numOutputs) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.sym_name = builder.getStringAttr(name);
  properties.function_type = TypeAttr::get(type);
  properties.sym_visibility = builder.getStringAttr("private");
  properties.grid = builder.getDenseI32ArrayAttr(grid);
  properties.num_outputs = builder.getI32IntegerAttr(numOutputs);
  Region *body = state.addRegion();
  Block &block = body->emplaceBlock();
  for (Type argument : type.getInputs())
    block.addArgument(argument, state.location);
}

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  auto buildType = [](Builder &builder, ArrayRef<Type> arguments,
                      ArrayRef<Type> results,
                      function_interface_impl::VariadicFlag, std::string &) {
    return builder.getFunctionType(arguments, results);
  };
  return function_interface_impl::parseFunctionOp(
      parser, result, /*allowVariadic=*/false,
      getFunctionTypeAttrName(result.name), buildType,
      getArgAttrsAttrName(result.name), getResAttrsAttrName(result.name));
}

void KernelOp::print(OpAsmPrinter &printer) {
  function_interface_impl::printFunctionOp(
      printer, *this, /*isVariadic=*/false, getFunctionTypeAttrName(),
      getArgAttrsAttrName(), getResAttrsAttrName());
}

LogicalResult KernelOp::verify() {
  if (!getFunctionType().getResults().empty())
    return emitOpError("returns ")
           << getFunctionType().getNumResults()
           << " values, but the outputs of a kernel are its last arguments";
  if (getGrid().size() != 3)
    return emitOpError("grid has ") << getGrid().size() << " extents, not 3";
  for (int32_t extent : getGrid())
    if (extent < 0)
      return emitOpError("grid extent ") << extent << " is negative";
  int64_t outputs = static_cast<int32_t>(getNumOutputs());
  if (outputs < 0 || outputs > getNumArguments())
    return emitOpError("has ")
           << outputs << " outputs but " << getNumArguments() << " arguments";
  for (auto [index, type] : llvm::enumerate(getArgumentTypes())) {
    auto memref = dyn_cast<MemRefType>(type);
    if (!memref || !nsa::getRowLayout(memref))
      return emitOpError("argument ")
             << index << " must be a memref of static shape and of identity "
             << "layout or that of rows, not " << type;
  }
  Block &body = getBody().front();
  if (body.empty() || !isa<ReturnOp>(body.back()))
    return emitOpError("must end in `tile.return`");
  return success();
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto kernel =
      symbols.lookupNearestSymbolFrom<KernelOp>(*this, getKernelAttr());
  if (!kernel)
    return emitOpError("names no kernel: ") << getKernelAttr();
  if (getInputs().size() != kernel.getNumInputs() ||
      getOutputs().size() != kernel.getNumOutputs())
    return emitOpError("has ")
           << getInputs().size() << " inputs and " << getOutputs().size()
           << " outputs, but " << getKernelAttr() << " takes "
           << kernel.getNumInputs() << " and " << kernel.getNumOutputs();
  SmallVector<Type> types(getInputs().getTypes());
  llvm::append_range(types, getOutputs().getTypes());
  for (auto [index, type] : llvm::enumerate(types)) {
    auto tensor = cast<RankedTensorType>(type);
    auto memref = cast<MemRefType>(kernel.getArgumentTypes()[index]);
    if (tensor.getShape() != memref.getShape() ||
        tensor.getElementType() != memref.getElementType())
      return emitOpError("gives ")
             << tensor << " where argument " << index << " of "
             << getKernelAttr() << " is " << memref;
  }
  return success();
}

void ProgramIdOp::inferResultRanges(ArrayRef<ConstantIntRanges>,
                                    SetIntRangeFn setResultRange) {
  auto kernel = (*this)->getParentOfType<KernelOp>();
  int64_t extent = kernel ? kernel.getGrid()[getAxis()] : 0;
  if (kernel && !getGridExtent(kernel, getAxis()).isConstant())
    extent = INT32_MAX;
  if (extent < 1)
    return setResultRange(getId(), ConstantIntRanges::maxRange(32));
  setResultRange(getId(), ConstantIntRanges::fromUnsigned(
                              APInt(32, 0), APInt(32, extent - 1)));
}

void ExtentOp::inferResultRanges(ArrayRef<ConstantIntRanges>,
                                 SetIntRangeFn setResultRange) {
  setResultRange(getExtent(), ConstantIntRanges::fromUnsigned(
                                  APInt(32, 0), APInt(32, INT32_MAX)));
}

//===----------------------------------------------------------------------===//
// Creation and memory
//===----------------------------------------------------------------------===//

LogicalResult RangeOp::verify() {
  if (getType().getRows() != 1 && getType().getCols() != 1)
    return emitOpError("varies along one axis, but its shape is ")
           << formatShape(getType().getShape());
  return success();
}

/// Broadcasts `shape` into `into` as numpy does; false if they do not fit.
static bool broadcastInto(ArrayRef<int64_t> shape,
                          SmallVectorImpl<int64_t> &into) {
  while (into.size() < shape.size())
    into.insert(into.begin(), 1);
  size_t skip = into.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t &size = into[skip + i];
    if (size == 1)
      size = shape[i];
    else if (shape[i] != 1 && shape[i] != size)
      return false;
  }
  return true;
}

/// One index per dimension, and index tiles that broadcast to the shape of the
/// value.
LogicalResult nsa::tile::verifyAccess(Operation *op, MemRefType ref,
                                      ValueRange indices, Type value) {
  if (static_cast<int64_t>(indices.size()) != ref.getRank())
    return op->emitOpError("has ") << indices.size() << " indices for "
                                   << ref.getRank() << " dimensions";
  if (elementTypeOf(value) != ref.getElementType())
    return op->emitOpError("moves ")
           << elementTypeOf(value) << ", but the memref holds "
           << ref.getElementType();
  SmallVector<int64_t> shape;
  for (Value index : indices) {
    auto tile = dyn_cast<TileType>(index.getType());
    if (tile && !broadcastInto(tile.getShape(), shape))
      return op->emitOpError("index of shape ")
             << formatShape(tile.getShape()) << " does not broadcast with "
             << formatShape(shape);
  }
  auto tile = dyn_cast<TileType>(value);
  if (!tile && !shape.empty())
    return op->emitOpError("indices of shape ")
           << formatShape(shape) << " need a tile, not " << value;
  if (tile && tile.getShape() != ArrayRef<int64_t>(shape))
    return op->emitOpError("indices of shape ")
           << formatShape(shape) << " do not address a tile of shape "
           << formatShape(tile.getShape());
  for (Value index : indices)
    if (!mixesWith(index.getType(), layoutOf(value)))
      return op->emitOpError("index in ")
             << formatLayout(layoutOf(index.getType()))
             << " addresses a tile in " << formatLayout(layoutOf(value));
  return success();
}

LogicalResult ViewOp::verify() {
  auto from = cast<MemRefType>(getRef().getType());
  auto to = cast<MemRefType>(getResult().getType());
  std::optional<RowLayout> source = getRowLayout(from);
  std::optional<RowLayout> target = getRowLayout(to);
  if (!source || !target)
    return emitOpError("needs identity layouts or those of rows");
  if (from.getElementType() != to.getElementType())
    return emitOpError("element type ")
           << to.getElementType() << " of the result is not "
           << from.getElementType();
  if (from.getNumElements() != to.getNumElements())
    return emitOpError("result has ")
           << to.getNumElements() << " elements, expected "
           << from.getNumElements();
  if (*source == *target)
    return success();
  return emitOpError("changes rows of ")
         << source->width << " elements at a distance of " << source->pitch
         << " to rows of " << target->width << " at a distance of "
         << target->pitch;
}

LogicalResult LoadOp::verify() {
  return verifyAccess(*this, cast<MemRefType>(getRef().getType()), getIndices(),
                      getResult().getType());
}

LogicalResult StoreOp::verify() {
  if (isa_and_nonnull<RematerializedAttr>(layoutOf(getValue().getType())))
    return emitOpError("writes a tile in #tile.rematerialized, which no thread "
                       "holds");
  return verifyAccess(*this, cast<MemRefType>(getRef().getType()), getIndices(),
                      getValue().getType());
}

//===----------------------------------------------------------------------===//
// MapOp
//===----------------------------------------------------------------------===//

LogicalResult MapOp::verify() {
  if (getNumResults() == 0)
    return emitOpError("has no result");
  ArrayRef<int64_t> shape = getShapeType().getShape();
  for (Type type : getResultTypes())
    if (cast<TileType>(type).getShape() != shape)
      return emitOpError("results of shapes ")
             << formatShape(shape) << " and "
             << formatShape(cast<TileType>(type).getShape()) << " must agree";
  for (Type type : getInputs().getTypes()) {
    SmallVector<int64_t> target(shape);
    if (!broadcastInto(cast<TileType>(type).getShape(), target) ||
        ArrayRef<int64_t>(target) != shape)
      return emitOpError("input of shape ")
             << formatShape(cast<TileType>(type).getShape())
             << " does not broadcast to " << formatShape(shape);
  }
  Attribute layout = getShapeType().getLayout();
  if (isa_and_nonnull<SharedAttr>(layout))
    return emitOpError("computes in ") << layout;
  for (Type type : getResultTypes())
    if (layoutOf(type) != layout)
      return emitOpError("results in ")
             << formatLayout(layout) << " and " << formatLayout(layoutOf(type))
             << " must agree";
  for (Type type : getInputs().getTypes())
    if (!mixesWith(type, layout))
      return emitOpError("input in ")
             << formatLayout(layoutOf(type)) << " but results in "
             << formatLayout(layout);
  return success();
}

LogicalResult MapOp::verifyRegions() {
  Block &block = getBody().front();
  if (block.getNumArguments() != getInputs().size())
    return emitOpError("body takes ")
           << block.getNumArguments() << " elements for " << getInputs().size()
           << " inputs";
  for (auto [argument, input] : llvm::zip(block.getArguments(), getInputs()))
    if (argument.getType() != elementTypeOf(input.getType()))
      return emitOpError("body takes ")
             << argument.getType() << " where the input holds "
             << elementTypeOf(input.getType());
  for (Operation &op : block.without_terminator()) {
    if (!isa<arith::ConstantOp>(op) &&
        !OpTrait::hasElementwiseMappableTraits(&op))
      return op.emitOpError("is no elementwise operation, so it cannot be in "
                            "the body of `tile.map`");
    for (Value operand : op.getOperands())
      if (isa<TileType>(operand.getType()))
        return op.emitOpError("uses a tile inside `tile.map`");
  }
  if (getYielded().size() != getNumResults())
    return emitOpError("body yields ")
           << getYielded().size() << " elements for " << getNumResults()
           << " results";
  for (auto [value, type] : llvm::zip(getYielded(), getResultTypes()))
    if (value.getType() != elementTypeOf(type))
      return emitOpError("body yields ")
             << value.getType() << " where the result holds "
             << elementTypeOf(type);
  return success();
}

//===----------------------------------------------------------------------===//
// Other computation
//===----------------------------------------------------------------------===//

/// What tensor cores need of a dot whose operands have layouts.
static LogicalResult verifyDotLayouts(DotOp op, int64_t length, int64_t n) {
  Attribute a = op.getA().getType().getLayout();
  Attribute b = op.getB().getType().getLayout();
  Attribute acc = op.getAcc().getType().getLayout();
  if (isPlain(a) && isPlain(b) && isPlain(acc))
    return success();
  if (!isa_and_nonnull<MmaLayoutAttr>(acc))
    return op.emitOpError("accumulates in ")
           << formatLayout(acc) << ", not in #tile.mma";
  if (!isa_and_nonnull<SharedAttr>(b))
    return op.emitOpError("has b in ")
           << formatLayout(b) << ", not in #tile.shared";
  if (a != acc && !isa_and_nonnull<SharedAttr>(a))
    return op.emitOpError("has a in ")
           << formatLayout(a) << ", neither in #tile.shared nor in " << acc;
  if (a == acc && op.getTransposeA())
    return op.emitOpError("transposes a in ") << a;
  if (length % 16 != 0 || n % 8 != 0)
    return op.emitOpError("contracts ")
           << length << " elements into " << n
           << " columns; with layouts these are multiples of 16 and 8";
  // The threads of a tile in the MMA layout of one row all hold that row.
  if (op.getAcc().getType().getRows() == 1)
    return op.emitOpError("accumulates 1 row in ")
           << acc << "; with layouts there are 2 at least";
  return success();
}

LogicalResult DotOp::verify() {
  TileType a = getA().getType(), b = getB().getType(), acc = getAcc().getType();
  if (a.getElementType() != b.getElementType())
    return emitOpError("multiplies ")
           << a.getElementType() << " by " << b.getElementType();
  if (a.getShape().size() != 2 || b.getShape().size() != 2 ||
      acc.getShape().size() != 2)
    return emitOpError("operands must have 2 dimensions");
  int64_t m = getTransposeA() ? a.getCols() : a.getRows();
  int64_t ka = getTransposeA() ? a.getRows() : a.getCols();
  int64_t kb = getTransposeB() ? b.getCols() : b.getRows();
  int64_t n = getTransposeB() ? b.getRows() : b.getCols();
  if (ka != kb)
    return emitOpError("contracts ")
           << ka << " elements of a with " << kb << " of b";
  if (acc.getRows() != m || acc.getCols() != n)
    return emitOpError("accumulates a ")
           << m << "x" << n << " dot into " << formatShape(acc.getShape());
  return verifyDotLayouts(*this, ka, n);
}

/// The type of a reduction's result.
static TileType reducedType(TileType input, int64_t axis) {
  SmallVector<int64_t> shape(input.getShape());
  if (shape.size() == 1 && axis == 1)
    axis = 0;
  if (axis < static_cast<int64_t>(shape.size()))
    shape[axis] = 1;
  return TileType::get(shape, input.getElementType(),
                       inferLayout(input.getLayout()));
}

LogicalResult ReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                         ValueRange operands,
                                         DictionaryAttr attributes,
                                         OpaqueProperties properties,
                                         RegionRange regions,
                                         SmallVectorImpl<Type> &types) {
  Adaptor adaptor(operands, attributes, properties, regions);
  types.push_back(reducedType(cast<TileType>(adaptor.getInput().getType()),
                              adaptor.getAxis()));
  return success();
}

bool ReduceOp::isCompatibleReturnTypes(TypeRange inferred, TypeRange types) {
  return llvm::equal(types, inferred, isInstanceOf);
}

LogicalResult ReduceOp::verify() {
  if (getInput().getType().getShape().size() != 2)
    return emitOpError("input must have 2 dimensions");
  if (Attribute layout = getInput().getType().getLayout();
      !isPlain(layout) && !isa<MmaLayoutAttr>(layout))
    return emitOpError("input in ")
           << layout << " must have no layout or #tile.mma";
  return success();
}

LogicalResult AnyOp::verify() {
  if (!getWarpUniform())
    return verifyNoLayout(*this);
  TileType type = getInput().getType();
  if (type.getCols() != 1)
    return emitOpError("warp_uniform takes one element for each row, not ")
           << type.getCols();
  if (Attribute layout = type.getLayout();
      !isPlain(layout) && !isa<MmaLayoutAttr>(layout))
    return emitOpError("input in ")
           << layout << " must have no layout or #tile.mma";
  return success();
}

LogicalResult ConvertOp::verify() {
  TileType from = getInput().getType(), to = getResult().getType();
  if (from.withLayout({}) != to.withLayout({}))
    return emitOpError("changes ")
           << from.withLayout({}) << " to " << to.withLayout({});
  Attribute source = from.getLayout(), target = to.getLayout();
  for (Attribute layout : {source, target})
    if (isa_and_nonnull<RematerializedAttr>(layout))
      return emitOpError("has no elements to move in ") << layout;
  if (source == target || (isPlain(source) && isPlain(target)) ||
      (isa_and_nonnull<MmaLayoutAttr>(source) &&
       isa_and_nonnull<MmaLayoutAttr>(target)))
    return emitOpError("from ")
           << formatLayout(source) << " to " << formatLayout(target)
           << " is none between different places";
  return success();
}

LogicalResult TransposeOp::inferReturnTypes(MLIRContext *,
                                            std::optional<Location>,
                                            ValueRange operands, DictionaryAttr,
                                            OpaqueProperties, RegionRange,
                                            SmallVectorImpl<Type> &types) {
  auto input = cast<TileType>(operands[0].getType());
  types.push_back(TileType::get({input.getCols(), input.getRows()},
                                input.getElementType()));
  return success();
}

bool TransposeOp::isCompatibleReturnTypes(TypeRange inferred, TypeRange types) {
  return llvm::equal(types, inferred, isInstanceOf);
}

LogicalResult TransposeOp::verify() {
  if (getInput().getType().getShape().size() != 2)
    return emitOpError("input must have 2 dimensions");
  return verifyNoLayout(*this);
}

LogicalResult TopNOp::verify() {
  TileType values = getValues().getType(), best = getBestValues().getType();
  if (best.getShape() != getBestIndices().getType().getShape())
    return emitOpError("keeps values of shape ")
           << formatShape(best.getShape()) << " and indices of shape "
           << formatShape(getBestIndices().getType().getShape());
  if (values.getRows() != best.getRows())
    return emitOpError("merges ")
           << values.getRows() << " rows into " << best.getRows();
  if (best.getLayout() != getBestIndices().getType().getLayout())
    return emitOpError("keeps values in ")
           << formatLayout(best.getLayout()) << " and indices in "
           << formatLayout(getBestIndices().getType().getLayout());
  return verifyNoLayout(*this);
}

LogicalResult SortOp::verify() { return verifyNoLayout(*this); }

#define GET_OP_CLASSES
#include "dialects/Tile/TileOps.cpp.inc"
