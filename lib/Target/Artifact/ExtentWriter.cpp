//===- ExtentWriter.cpp - fields that follow from extents -----------------===//

#include "lib/Target/Artifact/ExtentWriter.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/Interfaces/Extents.h"
#include "dialects/NN/NNAttributes.h"
#include "dialects/RT/RTOps.h"
#include "nsa/Artifact/Format.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa;
using artifact::ExtentField;
using artifact::ExtentOp;

namespace fb = flatbuffers;

bool nsa::hasExtents(ModuleOp module) {
  return !ExtentTable::of(module).empty();
}

namespace {
/// A number of the artefact's program of numbers.
using Number = uint32_t;

/// The steps that compute numbers, each written once.
class Steps {
public:
  Number constant(int64_t number) {
    return step(ExtentOp::Constant, number, 0);
  }
  Number add(Number lhs, Number rhs) { return step(ExtentOp::Add, lhs, rhs); }
  Number multiply(Number lhs, Number rhs) {
    return step(ExtentOp::Multiply, lhs, rhs);
  }
  Number maximum(Number lhs, Number rhs) {
    return lhs == rhs ? lhs : step(ExtentOp::Maximum, lhs, rhs);
  }
  /// The next multiple of the alignment of slices.
  Number align(Number number) {
    Number unit = constant(artifact::sliceAlignment);
    return multiply(step(ExtentOp::CeilDivide, number, unit), unit);
  }
  Number of(const Extent &extent);

  ArrayRef<artifact::ExtentStep> get() const { return steps; }

private:
  Number of(AffineExpr expr);
  Number step(ExtentOp op, int64_t lhs, int64_t rhs);

  SmallVector<artifact::ExtentStep> steps;
  DenseMap<std::tuple<unsigned, int64_t, int64_t>, Number> known;
};

/// Where something lies in its segment.
struct Place {
  Number offset, size;
};

class ExtentWriter {
public:
  explicit ExtentWriter(ModuleOp module)
      : module(module), table(ExtentTable::of(module)) {}

  LogicalResult run(bool hasBuffers);
  fb::Offset<artifact::Extents> write(fb::FlatBufferBuilder &builder);

private:
  Number getBytes(MemRefType type, const Extent &elements) {
    return steps.of(elements * (type.getElementTypeBitWidth() / 8));
  }
  Number getSpan(MemRefType type) {
    return getBytes(type, table.getElementSpan(type));
  }
  void use(ExtentField field, Number number, uint32_t at, uint32_t index = 0,
           uint32_t part = 0) {
    uses.emplace_back(field, number, at, index, part);
  }
  void placeTensors();
  void placeBuffers(rt::EntryOp entry);
  void placeWorkspace();
  Number getWorkspace(rt::GemmOp op);
  void writeKernel(rt::KernelOp op, uint32_t number);
  LogicalResult writeTensorMaps(rt::KernelOp op, uint32_t number);
  LogicalResult writeCommand(Operation *op, uint32_t entry, uint32_t command);
  LogicalResult writeMemory(Operation *user, Value value, uint32_t entry,
                            uint32_t command, uint32_t part);

  ModuleOp module;
  ExtentTable table;
  Steps steps;
  std::vector<artifact::ExtentUse> uses;
  SetVector<Number> limited;
  DenseMap<Attribute, Number> segmentSizes;
  DenseMap<Operation *, Place> places;
  SmallVector<Number> arenaPeaks;
};
} // namespace

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Number Steps::step(ExtentOp op, int64_t lhs, int64_t rhs) {
  auto [entry, isNew] =
      known.try_emplace({unsigned(op), lhs, rhs}, kNumExtents + steps.size());
  if (isNew)
    steps.emplace_back(op, lhs, rhs);
  return entry->second;
}

Number Steps::of(AffineExpr expr) {
  if (auto number = dyn_cast<AffineConstantExpr>(expr))
    return constant(number.getValue());
  if (auto extent = dyn_cast<AffineSymbolExpr>(expr))
    return extent.getPosition();
  auto binary = cast<AffineBinaryOpExpr>(expr);
  Number lhs = of(binary.getLHS()), rhs = of(binary.getRHS());
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return add(lhs, rhs);
  case AffineExprKind::Mul:
    return multiply(lhs, rhs);
  case AffineExprKind::FloorDiv:
    return step(ExtentOp::FloorDivide, lhs, rhs);
  case AffineExprKind::CeilDiv:
    return step(ExtentOp::CeilDivide, lhs, rhs);
  default:
    llvm_unreachable("extents have no remainders");
  }
}

Number Steps::of(const Extent &extent) {
  if (extent.isConstant())
    return constant(int64_t(extent));
  ArrayRef<AffineExpr> results = extent.getMap().getResults();
  Number most = of(results.front());
  for (AffineExpr result : results.drop_front())
    most = maximum(most, of(result));
  return most;
}

//===----------------------------------------------------------------------===//
// Offsets
//===----------------------------------------------------------------------===//

/// One after the other, in the order that they were planned in.
void ExtentWriter::placeTensors() {
  SmallVector<rt::TensorOp> tensors(module.getOps<rt::TensorOp>());
  llvm::stable_sort(tensors, [](rt::TensorOp x, rt::TensorOp y) {
    return x.getSlice()->getOffset() < y.getSlice()->getOffset();
  });
  for (rt::TensorOp tensor : tensors) {
    Attribute segment = tensor.getSlice()->getSegment();
    Number offset =
        segmentSizes.try_emplace(segment, steps.constant(0)).first->second;
    Number size = getSpan(tensor.getMemoryType());
    places[tensor] = {offset, size};
    segmentSizes[segment] = steps.add(offset, steps.align(size));
  }
}

/// A buffer lies after all that are alive at the same time and that were
/// planned before it.
void ExtentWriter::placeBuffers(rt::EntryOp entry) {
  SmallVector<rt::Lifetime> lifetimes = rt::getLifetimes(entry);
  auto offsetOf = [](rt::BufferOp buffer) {
    return buffer.getSlice()->getOffset();
  };
  llvm::stable_sort(lifetimes,
                    [&](const rt::Lifetime &x, const rt::Lifetime &y) {
                      return offsetOf(x.buffer) < offsetOf(y.buffer);
                    });
  Number peak = steps.constant(0);
  for (auto [index, own] : llvm::enumerate(lifetimes)) {
    Place place = {steps.constant(0), getSpan(own.buffer.getType())};
    for (rt::Lifetime other : ArrayRef(lifetimes).take_front(index))
      if (other.first <= own.last && own.first <= other.last) {
        Place before = places.lookup(other.buffer);
        place.offset = steps.maximum(
            place.offset, steps.add(before.offset, steps.align(before.size)));
      }
    places[own.buffer] = place;
    peak =
        steps.maximum(peak, steps.add(place.offset, steps.align(place.size)));
    Attribute segment = own.buffer.getSlice()->getSegment();
    Number &size =
        segmentSizes.try_emplace(segment, steps.constant(0)).first->second;
    size = steps.maximum(size, peak);
  }
  arenaPeaks.push_back(peak);
}

/// Copies of narrower operands, as gemmWorkspace has it.
Number ExtentWriter::getWorkspace(rt::GemmOp op) {
  Number bytes = steps.constant(0);
  for (Value operand : {op.getLhs(), op.getRhs(), op.getOut()}) {
    auto type = cast<MemRefType>(operand.getType());
    if (!type.getElementType().isF32())
      bytes = steps.add(bytes,
                        steps.align(steps.of(table.getNumElements(type) * 4)));
  }
  return bytes;
}

void ExtentWriter::placeWorkspace() {
  module.walk([&](rt::GemmOp op) {
    if (!op.getWorkspace())
      return;
    // On a GPU it is the library's, of one size for all.
    bool isOwn = op.getWorkspace()->getSize() == op.getWorkspaceSize();
    Place place = {steps.constant(0),
                   isOwn ? getWorkspace(op)
                         : steps.constant(op.getWorkspace()->getSize())};
    places[op] = place;
    Number &size =
        segmentSizes
            .try_emplace(op.getWorkspace()->getSegment(), steps.constant(0))
            .first->second;
    size = steps.maximum(size, place.size);
  });
}

//===----------------------------------------------------------------------===//
// Fields
//===----------------------------------------------------------------------===//

LogicalResult ExtentWriter::writeTensorMaps(rt::KernelOp op, uint32_t number) {
  ArrayAttr maps = op.getTensorMapsAttr();
  if (!maps)
    return success();
  for (auto [index, attribute] : llvm::enumerate(maps)) {
    auto map = cast<rt::TensorMapAttr>(attribute);
    auto memory =
        cast<MemRefType>(op.getFunctionType().getInputs()[map.getArgument()]);
    unsigned bytes = memory.getElementTypeBitWidth() / 8;
    SmallVector<Extent> shape = table.getShape(memory),
                        strides = table.getStrides(memory);
    // Dimensions of a map are some of the memory's, innermost first, or several
    // of them as one.
    for (auto [d, extent] : llvm::enumerate(map.getExtents().asArrayRef()))
      if (!table.find(extent).isConstant())
        use(ExtentField::MapExtent, steps.of(table.find(extent)), number, index,
            d);
    for (auto [d, distance] : llvm::enumerate(map.getStrides().asArrayRef())) {
      int64_t stride = distance;
      const Extent *found = llvm::find_if(strides, [&](const Extent &own) {
        return int64_t(own) * bytes == stride;
      });
      if (found != strides.end() && !found->isConstant())
        use(ExtentField::MapStride, steps.of(*found * bytes), number, index, d);
    }
  }
  return success();
}

void ExtentWriter::writeKernel(rt::KernelOp op, uint32_t number) {
  if (!op->hasAttr(kExtentsAttr))
    return;
  ExtentTable own = ExtentTable::of(op);
  for (const Extent &extent : own.getEntries())
    limited.insert(steps.of(extent));
  for (unsigned axis = 0; axis < 3; ++axis) {
    Number extent = steps.of(getGridExtent(op, axis));
    limited.insert(extent);
    use(ExtentField::KernelGrid, extent, number, axis);
  }
  Number sum = steps.constant(0);
  auto blocks = op->getAttrOfType<DenseI64ArrayAttr>(kSelectBlocksAttr);
  uint32_t selections = 0;
  for (auto [index, type] : llvm::enumerate(op.getFunctionType().getInputs())) {
    auto memory = cast<MemRefType>(type);
    Number bytes = getSpan(memory);
    use(ExtentField::ArgumentBytes, bytes, number, index);
    sum = steps.add(sum, getBytes(memory, table.getNumElements(memory)));
    RowLayout layout = *getRowLayout(memory);
    bool isDense = layout.width == layout.pitch;
    Extent elements = table.getNumElements(memory);
    use(ExtentField::RowsWidth,
        steps.of(isDense ? elements : table.find(layout.width)), number, index);
    use(ExtentField::RowsPitch,
        steps.of(isDense ? elements : table.find(layout.pitch)), number, index);
    if (blocks && blocks[index] != 0)
      use(ExtentField::SelectionTokens,
          steps.of(table.find(memory.getDimSize(2))), number, selections++);
  }
  if (op.getBytes())
    use(ExtentField::KernelBytes, sum, number);
}

/// Whether two sizes are the same for some calls that have nothing in common.
static bool areEqual(const Extent &x, const Extent &y) {
  const int64_t calls[][kNumExtents] = {{1, 1}, {3, 127}, {5, 2039}};
  return llvm::all_of(calls, [&](const auto &call) {
    return x.evaluate(call) == y.evaluate(call);
  });
}

LogicalResult ExtentWriter::writeMemory(Operation *user, Value value,
                                        uint32_t entry, uint32_t command,
                                        uint32_t part) {
  Value root = rt::getMemoryRoot(value);
  Operation *owner = root.getDefiningOp();
  if (auto get = dyn_cast<rt::GetOp>(owner))
    owner = SymbolTable::lookupNearestSymbolFrom(get, get.getTensorAttr());
  auto found = places.find(owner);
  if (found == places.end())
    return user->emitOpError("has memory that is no tensor and no buffer");
  auto type = cast<MemRefType>(value.getType());
  uint64_t offset = rt::getByteOffset(value);
  // Columns begin in the first row, which is as long in each call.
  auto whole = cast<MemRefType>(root.getType());
  uint64_t row = whole.getElementTypeBitWidth() / 8;
  for (int64_t extent : llvm::reverse(whole.getShape())) {
    if (!table.find(extent).isConstant())
      break;
    row *= extent;
  }
  if (offset == 0 && type.getNumElements() == whole.getNumElements() &&
      !areEqual(table.getNumElements(type), table.getNumElements(whole)))
    return user->emitOpError("has memory of ")
           << whole << " as " << type
           << ": it is not known how large that is in other calls";
  if (offset >= std::max<uint64_t>(row, 1) && table.isNeededBy(whole))
    return user->emitOpError("has memory from byte ")
           << offset << " on of a tensor with rows of " << row
           << " bytes: it is not known where that is in other calls";
  use(ExtentField::MemoryOffset,
      steps.add(found->second.offset, steps.constant(offset)), entry, command,
      part);
  use(ExtentField::MemorySize, getSpan(type), entry, command, part);
  return success();
}

LogicalResult ExtentWriter::writeCommand(Operation *op, uint32_t entry,
                                         uint32_t command) {
  auto gemm = dyn_cast<rt::GemmOp>(op);
  if (gemm && !gemm.isExtended()) {
    auto rows = [&](Value value) {
      auto shape = table.getShape(cast<MemRefType>(value.getType()));
      Extent product = 1;
      for (const Extent &extent : ArrayRef(shape).drop_back())
        product = product * extent;
      return product;
    };
    auto columns = [&](Value value) {
      return table.find(cast<MemRefType>(value.getType()).getShape().back());
    };
    Extent sizes[] = {rows(gemm.getOut()), columns(gemm.getOut()),
                      gemm.getTransposeLhs() ? rows(gemm.getLhs())
                                             : columns(gemm.getLhs())};
    for (auto [index, size] : llvm::enumerate(sizes))
      use(ExtentField::GemmSize, steps.of(size), entry, command, index);
    if (gemm.getWorkspace()) {
      use(ExtentField::MemoryOffset, places[op].offset, entry, command, 3);
      use(ExtentField::MemorySize, places[op].size, entry, command, 3);
    }
  } else if (!isa<rt::LaunchOp, rt::FillOp, rt::CopyOp, rt::InitializeOp>(op)) {
    return op->emitOpError(
        "has no form for extents that are known at the call");
  }
  if (isa<rt::InitializeOp>(op))
    return success();
  for (auto [index, value] : llvm::enumerate(op->getOperands()))
    if (failed(writeMemory(op, value, entry, command, index)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// The program
//===----------------------------------------------------------------------===//

LogicalResult ExtentWriter::run(bool hasBuffers) {
  placeTensors();
  for (auto entry : module.getOps<rt::EntryOp>())
    placeBuffers(entry);
  placeWorkspace();
  for (auto [number, op] :
       llvm::enumerate(llvm::to_vector(module.getOps<rt::SegmentOp>()))) {
    auto size = segmentSizes.find(FlatSymbolRefAttr::get(op));
    if (size != segmentSizes.end())
      use(ExtentField::SegmentSize, size->second, number);
  }
  for (auto [number, op] :
       llvm::enumerate(llvm::to_vector(module.getOps<rt::TensorOp>()))) {
    for (auto [d, extent] : llvm::enumerate(table.getShape(op.getMemoryType())))
      if (!extent.isConstant())
        use(ExtentField::TensorShape, steps.of(extent), number, d);
    use(ExtentField::TensorOffset, places[op].offset, number);
    use(ExtentField::TensorSize, places[op].size, number);
  }
  for (auto [number, op] :
       llvm::enumerate(llvm::to_vector(module.getOps<rt::KernelOp>()))) {
    writeKernel(op, number);
    if (failed(writeTensorMaps(op, number)))
      return failure();
  }
  uint32_t buffers = 0;
  for (auto [number, op] :
       llvm::enumerate(llvm::to_vector(module.getOps<rt::EntryOp>()))) {
    for (auto [index, command] : llvm::enumerate(rt::getCommands(op)))
      if (failed(writeCommand(command, number, index)))
        return failure();
    use(ExtentField::ArenaPeak, arenaPeaks[number], number);
    if (!hasBuffers)
      continue;
    for (rt::Lifetime lifetime : rt::getLifetimes(op)) {
      Place place = places.lookup(lifetime.buffer);
      use(ExtentField::BufferOffset, place.offset, buffers);
      use(ExtentField::BufferSize, place.size, buffers++);
    }
  }
  return success();
}

fb::Offset<artifact::Extents>
ExtentWriter::write(fb::FlatBufferBuilder &builder) {
  std::vector<uint64_t> representatives(kNumExtents, 1);
  for (const Extent &extent : table.getEntries())
    for (unsigned index = 0; index < kNumExtents; ++index)
      if (extent.getMap().getResult(0) ==
          getAffineSymbolExpr(index, module.getContext()))
        representatives[index] = int64_t(extent);
  std::vector<std::string> names(kNumExtents);
  names[kBatchExtent] = nn::kBatchDim.str();
  names[kSequenceExtent] = nn::kSequenceDim.str();
  auto nameList = builder.CreateVectorOfStrings(names);
  auto representativeList = builder.CreateVector(representatives);
  auto stepList =
      builder.CreateVectorOfStructs(steps.get().data(), steps.get().size());
  auto useList = builder.CreateVectorOfStructs(uses);
  auto limitedList = builder.CreateVector(
      std::vector<uint32_t>(limited.begin(), limited.end()));
  auto valueList = builder.CreateVector(std::vector<uint64_t>(kNumExtents, 0));
  return artifact::CreateExtents(builder, nameList, representativeList,
                                 stepList, useList, limitedList, valueList);
}

FailureOr<fb::Offset<artifact::Extents>>
nsa::writeExtents(fb::FlatBufferBuilder &builder, ModuleOp module,
                  bool hasBuffers) {
  ExtentWriter writer(module);
  if (failed(writer.run(hasBuffers)))
    return failure();
  return writer.write(builder);
}
