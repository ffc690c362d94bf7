//===- RTOps.cpp - tensors, buffers and commands --------------------------===//

#include "dialects/RT/RTOps.h"
#include "nsa/Artifact/GemmWorkspace.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::rt;

#include "dialects/RT/RTInterfaces.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/RT/RTOps.cpp.inc"

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

bool rt::isAddressable(ShapedType type) {
  if (llvm::is_contained(type.getShape(), 0))
    return true;
  uint64_t bytes = llvm::divideCeil(type.getElementTypeBitWidth(), 8);
  for (int64_t extent : type.getShape()) {
    bytes = llvm::SaturatingMultiply<uint64_t>(bytes, extent);
    if (bytes >= (uint64_t(1) << 48))
      return false;
  }
  return true;
}

uint64_t rt::getByteSize(MemRefType type) {
  return getElementSpan(type) * (type.getElementTypeBitWidth() / 8);
}

Value rt::getMemoryRoot(Value value) {
  while (auto view = value.getDefiningOp<ViewOp>())
    value = view.getSource();
  return value;
}

SmallVector<FlatSymbolRefAttr> rt::getTensorNames(Value value) {
  Value root = getMemoryRoot(value);
  if (auto get = root.getDefiningOp<GetOp>())
    return {get.getTensorAttr()};
  if (auto view = root.getDefiningOp<FlatViewOp>())
    return llvm::to_vector(view.getTensors().getAsRange<FlatSymbolRefAttr>());
  return {};
}

bool rt::shareTensors(Value a, Value b) {
  SmallVector<FlatSymbolRefAttr> names = getTensorNames(a);
  return llvm::any_of(getTensorNames(b), [&](FlatSymbolRefAttr name) {
    return llvm::is_contained(names, name);
  });
}

uint64_t rt::getFlatViewBytes(TensorOp tensor) {
  return llvm::alignTo(getByteSize(tensor.getMemoryType()), kFlatViewAlignment);
}

/// Sources of views are dense, so offsets add up.
static int64_t getElementOffset(Value value) {
  int64_t offset = 0;
  while (auto view = value.getDefiningOp<ViewOp>()) {
    offset += view.getOffset().value_or(0);
    value = view.getSource();
  }
  return offset;
}

uint64_t rt::getByteOffset(Value value) {
  auto type = cast<MemRefType>(value.getType());
  return getElementOffset(value) * (type.getElementTypeBitWidth() / 8);
}

rt::MemoryRegion rt::getMemoryRegion(Value value) {
  Value root = getMemoryRoot(value);
  int64_t begin = getElementOffset(value);
  auto type = cast<MemRefType>(value.getType());
  RowLayout layout = *getRowLayout(type);
  if (layout.width == layout.pitch)
    layout.pitch = cast<MemRefType>(root.getType()).getNumElements();
  return {root, begin, begin + layout.width, layout.pitch};
}

bool rt::MemoryRegion::overlaps(const MemoryRegion &other) const {
  if (root != other.root)
    return false;
  return pitch != other.pitch || (begin < other.end && other.begin < end);
}

/// Whether the regions of this pitch have the elements `begin` .. `end` - 1.
static bool coverRows(ArrayRef<rt::MemoryRegion> regions, Value root,
                      int64_t begin, int64_t end, int64_t pitch) {
  for (bool advanced = true; advanced && begin < end;) {
    advanced = false;
    for (const rt::MemoryRegion &region : regions)
      if (region.root == root && region.pitch == pitch &&
          region.begin <= begin && begin < region.end) {
        begin = region.end;
        advanced = true;
      }
  }
  return begin >= end;
}

bool rt::cover(ArrayRef<MemoryRegion> regions, const MemoryRegion &region) {
  if (coverRows(regions, region.root, region.begin, region.end, region.pitch))
    return true;
  return llvm::any_of(regions, [&](const MemoryRegion &other) {
    return other.root == region.root &&
           coverRows(regions, region.root, 0, other.pitch, other.pitch);
  });
}

/// Whether a slice is the memory of `type` in a segment of one of `kinds`.
static LogicalResult verifySlice(Operation *op, SymbolTableCollection &symbols,
                                 SliceAttr slice, MemRefType type,
                                 ArrayRef<SegmentKind> kinds) {
  auto segment =
      symbols.lookupNearestSymbolFrom<SegmentOp>(op, slice.getSegment());
  if (!segment)
    return op->emitOpError("has its slice in ")
           << slice.getSegment() << ", which is not a segment";
  if (!llvm::is_contained(kinds, segment.getKind()))
    return op->emitOpError("has its slice in ")
           << slice.getSegment() << ", whose kind is "
           << stringifySegmentKind(segment.getKind());
  if (slice.getSize() != getByteSize(type))
    return op->emitOpError("has a slice of ")
           << slice.getSize() << " bytes, but " << type << " takes "
           << getByteSize(type);
  if (slice.getOffset() % segment.getAlignment() != 0)
    return op->emitOpError("has its slice at byte ")
           << slice.getOffset() << ", which is not a multiple of the alignment "
           << segment.getAlignment();
  if (slice.getEnd() > static_cast<uint64_t>(segment.getSize()))
    return op->emitOpError("has a slice that ends at byte ")
           << slice.getEnd() << " of a segment of " << segment.getSize()
           << " bytes";
  return success();
}

LogicalResult SegmentOp::verify() {
  if (!llvm::isPowerOf2_64(getAlignment()))
    return emitOpError("has alignment ")
           << getAlignment() << ", which is not a power of two";
  return success();
}

LogicalResult TensorOp::verify() {
  if (getDecay() && getRole() != TensorRole::Parameter)
    return emitOpError("decays, but its role is ")
           << stringifyTensorRole(getRole()) << " and not parameter";
  if (getState() && getRole() != TensorRole::State)
    return emitOpError("is the state `")
           << *getState() << "` of an optimizer, but its role is "
           << stringifyTensorRole(getRole()) << " and not state";
  if (getHost() && getRole() != TensorRole::Parameter)
    return emitOpError("is of the host, but its role is ")
           << stringifyTensorRole(getRole()) << " and not parameter";
  if (getInit() && isIO())
    return emitOpError("has an initial value, but its role is ")
           << stringifyTensorRole(getRole());
  return success();
}

LogicalResult TensorOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!getSlice())
    return success();
  SegmentKind kind = isIO()      ? SegmentKind::IO
                     : getHost() ? SegmentKind::Host
                                 : SegmentKind::Persistent;
  return verifySlice(*this, symbols, *getSlice(), getMemoryType(), kind);
}

LogicalResult GetOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto tensor =
      symbols.lookupNearestSymbolFrom<TensorOp>(*this, getTensorAttr());
  if (!tensor)
    return emitOpError("names ")
           << getTensorAttr() << ", which is not a tensor";
  if (tensor.getMemoryType() != getType())
    return emitOpError("has type ")
           << getType() << ", but tensor " << getTensorAttr() << " has type "
           << tensor.getMemoryType();
  return success();
}

void GetOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getMemory(), getTensor());
}

/// Whether planned tensors lie in `slices` order without gaps.
static LogicalResult verifyFlatViewSlices(FlatViewOp view,
                                          ArrayRef<SliceAttr> slices) {
  for (size_t i = 1; i < slices.size(); ++i) {
    uint64_t expected =
        llvm::alignTo(slices[i - 1].getEnd(), kFlatViewAlignment);
    if (slices[i].getOffset() != expected ||
        slices[i].getSegment() != slices[0].getSegment())
      return view.emitOpError("has tensor ")
             << view.getTensors()[i] << " at offset " << slices[i].getOffset()
             << " of " << slices[i].getSegment() << ", but the one before ends "
             << "at offset " << expected << " of " << slices[0].getSegment();
  }
  return success();
}

LogicalResult FlatViewOp::verifySymbolUses(SymbolTableCollection &symbols) {
  uint64_t bytes = 0;
  SmallVector<SliceAttr> slices;
  if (getTensors().empty())
    return emitOpError("has 0 tensors, but needs 1 at least");
  for (Attribute attribute : getTensors()) {
    auto name = cast<FlatSymbolRefAttr>(attribute);
    auto tensor = symbols.lookupNearestSymbolFrom<TensorOp>(*this, name);
    if (!tensor)
      return emitOpError("names ") << name << ", which is not a tensor";
    if (!tensor.getMemoryType().getElementType().isF32())
      return emitOpError("has tensor ")
             << name << " of type " << tensor.getMemoryType()
             << ", which is not of type f32";
    bytes += getFlatViewBytes(tensor);
    if (std::optional<SliceAttr> slice = tensor.getSlice())
      slices.push_back(*slice);
  }
  if (!getType().getElementType().isF32() || bytes != getByteSize(getType()))
    return emitOpError("has type ")
           << getType() << ", but its tensors are memref<" << bytes / 4
           << "xf32>";
  return slices.size() == getTensors().size()
             ? verifyFlatViewSlices(*this, slices)
             : success();
}

LogicalResult BufferOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!getSlice())
    return success();
  return verifySlice(*this, symbols, *getSlice(), getType(),
                     SegmentKind::Arena);
}

LogicalResult ViewOp::verify() {
  MemRefType from = getSource().getType(), to = getType();
  if (from.getElementType() != to.getElementType())
    return emitOpError("changes the element type from ")
           << from.getElementType() << " to " << to.getElementType();
  int64_t before = from.getNumElements(), after = to.getNumElements();
  RowLayout layout = *getRowLayout(to);
  bool isDense = layout.width == layout.pitch;
  if (!getOffset()) {
    if (isDense && before == after)
      return success();
    return emitOpError("changes the number of elements from ")
           << before << " to " << after;
  }
  int64_t offset = *getOffset(), pitch = isDense ? before : layout.pitch;
  if (layout.width > pitch || offset > pitch - layout.width)
    return emitOpError("has elements ")
           << offset << " to " << offset + layout.width - 1 << " of "
           << (isDense ? "memory" : "rows") << " of " << pitch;
  if (!isDense &&
      (before % pitch != 0 || before / pitch != after / layout.width))
    return emitOpError("has ")
           << after / layout.width << " rows of " << pitch
           << " elements, but the source has " << before << " elements";
  return success();
}

Value ViewOp::getViewSource() { return getSource(); }

OpFoldResult ViewOp::fold(FoldAdaptor) {
  auto inner = getSource().getDefiningOp<ViewOp>();
  if (inner && !inner.getOffset()) {
    getSourceMutable().assign(inner.getSource());
    return getResult();
  }
  if (!getOffset() && getSource().getType() == getType())
    return getSource();
  return {};
}

//===----------------------------------------------------------------------===//
// Launch
//===----------------------------------------------------------------------===//

/// The argument types of a kernel, compiled or not; nothing for other symbols.
static std::optional<ArrayRef<Type>> getKernelArgumentTypes(Operation *kernel) {
  if (auto compiled = dyn_cast_if_present<KernelOp>(kernel))
    return compiled.getFunctionType().getInputs();
  if (auto function = dyn_cast_if_present<FunctionOpInterface>(kernel))
    return function.getArgumentTypes();
  return std::nullopt;
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Operation *kernel = symbols.lookupNearestSymbolFrom(*this, getKernelAttr());
  std::optional<ArrayRef<Type>> arguments = getKernelArgumentTypes(kernel);
  if (!arguments)
    return emitOpError("names ")
           << getKernelAttr() << ", which is not a kernel";
  if (arguments->size() != getNumOperands())
    return emitOpError("passes ")
           << getNumOperands() << " operands to kernel " << getKernelAttr()
           << ", which has " << arguments->size() << " arguments";
  if (auto outputs = kernel->getAttrOfType<IntegerAttr>("num_outputs");
      outputs && outputs.getInt() != static_cast<int64_t>(getOutputs().size()))
    return emitOpError("has ")
           << getOutputs().size() << " outputs, but kernel " << getKernelAttr()
           << " has " << outputs.getInt();
  for (auto [index, operand, argument] :
       llvm::enumerate(getOperandTypes(), *arguments))
    if (operand != argument)
      return emitOpError("operand ")
             << index << " has type " << operand << ", but kernel "
             << getKernelAttr() << " takes " << argument;
  return success();
}

/// Whether a map describes memory of the argument that it names.
static LogicalResult verifyTensorMap(KernelOp kernel, size_t number,
                                     TensorMapAttr map) {
  ArrayRef<Type> arguments = kernel.getFunctionType().getInputs();
  if (map.getArgument() >= arguments.size())
    return kernel.emitOpError("tensor map ")
           << number << " is of argument " << map.getArgument()
           << ", but there are " << arguments.size();
  auto memory = cast<MemRefType>(arguments[map.getArgument()]);
  if (map.getElement() != memory.getElementType())
    return kernel.emitOpError("tensor map ")
           << number << " has elements of type " << map.getElement()
           << ", but argument " << map.getArgument() << " has type " << memory;
  if (!getRowLayout(memory))
    return kernel.emitOpError("tensor map ")
           << number << " is of argument " << map.getArgument() << " of type "
           << memory << ", which does not lie in rows";
  if (map.getSpan() > getByteSize(memory))
    return kernel.emitOpError("tensor map ")
           << number << " describes " << map.getSpan() << " bytes of argument "
           << map.getArgument() << ", which has " << getByteSize(memory);
  return success();
}

LogicalResult KernelOp::verify() {
  for (auto [index, type] : llvm::enumerate(getFunctionType().getInputs())) {
    auto memory = dyn_cast<MemRefType>(type);
    if (!memory || !memory.hasStaticShape())
      return emitOpError("argument ")
             << index << " has type " << type
             << ", which is not a memref of static shape";
  }
  if (getNumOutputs() > getFunctionType().getNumInputs())
    return emitOpError("has ")
           << getNumOutputs() << " outputs, but "
           << getFunctionType().getNumInputs() << " arguments";
  if (std::optional<ArrayAttr> maps = getTensorMaps())
    for (auto [number, map] :
         llvm::enumerate(maps->getAsRange<TensorMapAttr>()))
      if (failed(verifyTensorMap(*this, number, map)))
        return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Gemm
//===----------------------------------------------------------------------===//

void GemmOp::getReads(SmallVectorImpl<Value> &values) {
  values.append({getLhs(), getRhs()});
  if (!getBeta().isZero())
    values.push_back(getAddend() ? getAddend() : Value(getOut()));
}

namespace {
struct Matrix {
  int64_t rows = 1, columns = 1;
};
} // namespace

static Matrix getMatrix(Value value, int64_t batch, bool transpose = false) {
  auto type = cast<MemRefType>(value.getType());
  Matrix matrix;
  if (type.getRank() > 0) {
    matrix.columns = type.getShape().back();
    for (int64_t extent : type.getShape().drop_back())
      matrix.rows *= extent;
  }
  matrix.rows /= batch;
  if (transpose)
    std::swap(matrix.rows, matrix.columns);
  return matrix;
}

GemmOp::Sizes GemmOp::getSizes() {
  int64_t batch = getBatch();
  Matrix lhs = getMatrix(getLhs(), batch, getTransposeLhs());
  Matrix rhs = getMatrix(getRhs(), batch, getTransposeRhs());
  return {lhs.rows, rhs.columns, lhs.columns};
}

LogicalResult GemmOp::verify() {
  int64_t batch = getBatch();
  for (Value operand : {getLhs(), getRhs(), getOut()})
    if (int64_t rows = getMatrix(operand, /*batch=*/1).rows; rows % batch != 0)
      return emitOpError("has ")
             << rows << " rows, which are no " << batch << " matrices";
  Matrix lhs = getMatrix(getLhs(), batch, getTransposeLhs());
  Matrix rhs = getMatrix(getRhs(), batch, getTransposeRhs());
  Matrix out = getMatrix(getOut(), batch);
  if (lhs.columns != rhs.rows)
    return emitOpError("multiplies ")
           << lhs.rows << "x" << lhs.columns << " by " << rhs.rows << "x"
           << rhs.columns;
  if (lhs.rows != out.rows || rhs.columns != out.columns)
    return emitOpError("has a matmul result of ")
           << lhs.rows << "x" << rhs.columns << ", but its output is "
           << out.rows << "x" << out.columns;
  Value root = getMemoryRoot(getOut());
  if (root == getMemoryRoot(getLhs()) || root == getMemoryRoot(getRhs()))
    return emitOpError("writes memory that it multiplies");
  if (getAddend() && root == getMemoryRoot(getAddend()))
    return emitOpError("writes memory that it adds");
  return success();
}

static DataType getFloatDataType(Value value) {
  Type type = cast<MemRefType>(value.getType()).getElementType();
  if (type.isF32())
    return DataType::F32;
  return type.isBF16() ? DataType::BF16 : DataType::F16;
}

uint64_t GemmOp::getWorkspaceSize() {
  auto [m, n, k] = getSizes();
  return gemmWorkspace(m, n, k, getFloatDataType(getLhs()),
                       getFloatDataType(getRhs()), getFloatDataType(getOut()),
                       getBatch())
      .bytes;
}

void GemmOp::assignWorkspace(SliceAttr slice) { setWorkspaceAttr(slice); }

//===----------------------------------------------------------------------===//
// Fill, copy, parts, collectives, initialize
//===----------------------------------------------------------------------===//

LogicalResult CopyOp::verify() {
  if (getMemoryRoot(getSource()) == getMemoryRoot(getOut()))
    return emitOpError("copies memory onto itself");
  return success();
}

/// Each rank has as many elements of the memory, of the same type.
static LogicalResult verifyPart(Operation *op, Value memory, Value part) {
  auto type = cast<MemRefType>(memory.getType());
  auto partType = cast<MemRefType>(part.getType());
  if (type.getElementType() != partType.getElementType())
    return op->emitOpError("has a part of ")
           << partType.getElementType() << " of memory of "
           << type.getElementType();
  int64_t elements = type.getNumElements(), own = partType.getNumElements();
  if (own == 0 || elements % own != 0)
    return op->emitOpError("has a part of ")
           << own << " elements of " << elements;
  return success();
}

LogicalResult SliceShardOp::verify() {
  return verifyPart(*this, getMemory(), getPart());
}

LogicalResult WriteShardOp::verify() {
  return verifyPart(*this, getMemory(), getPart());
}

/// The tokens of both that `pattern` leaves to be equal, of `rows`, two for
/// each sequence.
template <typename OpT>
static LogicalResult verifyChunks(OpT op) {
  auto type = cast<MemRefType>(op.getMemory().getType());
  auto rows = cast<MemRefType>(op.getRows().getType());
  ChunkPattern pattern = op.getPattern();
  if (type.getRank() < 2 || rows.getRank() != type.getRank() ||
      type.getElementType() != rows.getElementType() ||
      type.getShape().drop_front(2) != rows.getShape().drop_front(2))
    return op.emitOpError("has rows ") << rows << " of " << type;
  int64_t sequences = type.getDimSize(0), chunks = 2 * op.getRanks();
  if (pattern == ChunkPattern::Own)
    sequences /= 2;
  if (sequences == 0 || rows.getDimSize(0) != 2 * sequences)
    return op.emitOpError("has ")
           << rows.getDimSize(0) << " chunks, expected two of each sequence of "
           << type;
  int64_t tokens = type.getDimSize(1), own = rows.getDimSize(1);
  bool fits = pattern == ChunkPattern::Own
                  ? tokens > own
                  : tokens % chunks == 0 && tokens / chunks < own;
  if (fits)
    return success();
  return op.emitOpError("has rows of ") << own << " tokens, which do not fit "
                                        << chunks << " chunks of " << type;
}

void SliceSequenceOp::getReads(SmallVectorImpl<Value> &values) {
  values.push_back(getMemory());
  if (getPattern() == ChunkPattern::Halo)
    values.push_back(getRows());
}

void WriteSequenceOp::getReads(SmallVectorImpl<Value> &values) {
  values.push_back(getRows());
  if (getPattern() == ChunkPattern::Halo)
    values.push_back(getMemory());
}

LogicalResult SliceSequenceOp::verify() { return verifyChunks(*this); }

LogicalResult WriteSequenceOp::verify() { return verifyChunks(*this); }

/// Sums take the rows completely, unless these are longer than chunks.
void CollectiveStartOp::getReads(SmallVectorImpl<Value> &values) {
  bool isGather = getKind() == Collective::GatherSequence;
  values.push_back(isGather ? getRows() : getMemory());
  if (!isGather && getRows() &&
      getByteSize(cast<MemRefType>(getRows().getType())) * *getRanks() >
          getByteSize(cast<MemRefType>(getMemory().getType())))
    values.push_back(getRows());
}

void CollectiveStartOp::getWrites(SmallVectorImpl<Value> &values) {
  bool sums = getKind() == Collective::ReduceScatterSequence;
  values.push_back(sums ? getRows() : getMemory());
}

/// Rows are two of each sequence, no shorter than the chunks of a rank.
static LogicalResult verifyRows(CollectiveStartOp start) {
  auto type = cast<MemRefType>(start.getMemory().getType());
  auto rows = cast<MemRefType>(start.getRows().getType());
  if (type.getRank() > 1 && rows.getRank() == type.getRank() &&
      rows.getElementType() == type.getElementType() &&
      rows.getDimSize(0) == 2 * type.getDimSize(0) &&
      rows.getShape().drop_front(2) == type.getShape().drop_front(2) &&
      rows.getDimSize(1) * 2 * int64_t(*start.getRanks()) >= type.getDimSize(1))
    return success();
  return start.emitOpError("has rows ") << rows << " of " << type;
}

LogicalResult CollectiveStartOp::verify() {
  auto type = cast<MemRefType>(getMemory().getType());
  if (isOfSequences() != bool(getRows()))
    return emitOpError(isOfSequences() ? "needs rows" : "takes no rows");
  if (getKind() == Collective::AllReduce)
    return success();
  if (!getRanks())
    return emitOpError("needs the number of ranks");
  int64_t parts = *getRanks();
  if (isOfSequences())
    parts *= 2 * (type.getRank() ? type.getDimSize(0) : 1);
  if (type.getNumElements() % parts != 0)
    return emitOpError("has ") << type.getNumElements() << " elements, which "
                               << parts << " does not divide";
  return isOfSequences() ? verifyRows(*this) : success();
}

LogicalResult InitializeOp::verify() {
  if (!getOut().getDefiningOp<GetOp>())
    return emitOpError("needs the memory of a named tensor");
  return success();
}

LogicalResult InitializeOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto get = getOut().getDefiningOp<GetOp>();
  auto tensor =
      symbols.lookupNearestSymbolFrom<TensorOp>(*this, get.getTensorAttr());
  if (tensor && !tensor.getInit())
    return emitOpError("names tensor ")
           << get.getTensorAttr() << ", which has no initial value";
  return success();
}
