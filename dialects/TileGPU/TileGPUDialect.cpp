//===- TileGPUDialect.cpp - what the GPU target decides -------------------===//

#include "dialects/TileGPU/TileGPUDialect.h"
#include "dialects/Tile/TileOps.h"
#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

#include "dialects/TileGPU/TileGPUDialect.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/TileGPU/TileGPUAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/TileGPU/TileGPUTypes.cpp.inc"

static constexpr int64_t kWarp = 32;

void TileGPUDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/TileGPU/TileGPUAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/TileGPU/TileGPUTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/TileGPU/TileGPUOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

Type MemDescType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type elementType;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() ||
      parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(elementType) || parser.parseGreater())
    return {};
  return MemDescType::getChecked([&] { return parser.emitError(loc); },
                                 parser.getContext(), shape, elementType);
}

void MemDescType::print(AsmPrinter &printer) const {
  printer << '<';
  printer.printDimensionList(getShape());
  printer << 'x' << getElementType() << '>';
}

LogicalResult MemDescType::verify(function_ref<InFlightDiagnostic()> emitError,
                                  ArrayRef<int64_t> shape, Type elementType) {
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1)
    return emitError()
           << "a memdesc has rows and columns, at least one of each";
  if (elementType.isBF16() || elementType.isF16())
    return success();
  if (!elementType.isF32() && !elementType.isInteger(32))
    return emitError() << "element type " << elementType
                       << " of a memdesc is not bf16, f16, f32 or i32";
  if (shape[0] != 1 && shape[1] != 1)
    return emitError() << "a memdesc of " << elementType
                       << " is one row or one column";
  return success();
}

LogicalResult
MBarriersType::verify(function_ref<InFlightDiagnostic()> emitError,
                      int64_t count) {
  if (count >= 1)
    return success();
  return emitError() << "there is at least one mbarrier, not " << count;
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

LogicalResult BlockedAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                  int64_t threads, int64_t threadsPerRow,
                                  int64_t width) {
  if (!isBlockSize(threads))
    return emitError() << "threads of a blocked layout must be a multiple of "
                       << kWarp << " up to 1024, not " << threads;
  bool isPartOfWarp = threadsPerRow >= 1 && threadsPerRow <= kWarp &&
                      llvm::isPowerOf2_64(uint64_t(threadsPerRow));
  if (!isPartOfWarp && threadsPerRow != threads)
    return emitError() << "threads_per_row of a blocked layout must be a power "
                          "of two up to "
                       << kWarp << ", or all " << threads << " threads, not "
                       << threadsPerRow;
  if (width < 1 || width > 8 || !llvm::isPowerOf2_64(uint64_t(width)))
    return emitError() << "width of a blocked layout must be 1, 2, 4 or 8, not "
                       << width;
  return success();
}

LogicalResult BlockedAttr::verifyEncoding(
    ArrayRef<int64_t> shape, Type,
    function_ref<InFlightDiagnostic()> emitError) const {
  int64_t rows = shape.size() == 1 ? 1 : shape.front(), cols = shape.back();
  if (cols % getWidth() != 0)
    return emitError() << *this << " has " << getWidth()
                       << " columns together, which do not divide the " << cols
                       << " of a tile";
  if (rows > 1 && getThreadsPerRow() > kWarp)
    return emitError() << *this << " gives each of " << rows << " rows "
                       << getThreadsPerRow() << " threads, more than the "
                       << kWarp << " of a warp";
  return success();
}

LogicalResult MmaAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                              int64_t version) {
  if (version != 2 && version != 3)
    return emitError() << "version of mma must be 2 or 3, not " << version;
  return success();
}

LogicalResult PipelineAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   int64_t stages, int64_t bytes,
                                   int64_t offset, bool) {
  if (stages >= 2 && bytes > 0 && offset >= 0)
    return success();
  return emitError() << "a pipeline has 2 stages or more of at least a byte, "
                        "not "
                     << stages << " of " << bytes << " bytes at " << offset;
}

LogicalResult ProducerAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   int64_t barriers, int64_t blocks) {
  if (barriers >= 0 && blocks >= 1)
    return success();
  return emitError() << "a producer's barriers lie at 0 or after it and it "
                        "leaves a block or more, not at "
                     << barriers << " and " << blocks;
}

//===----------------------------------------------------------------------===//
// Attributes of operations
//===----------------------------------------------------------------------===//

/// The threads that a layout is for; 0 if for any.
static int64_t threadsOf(Attribute layout) {
  if (auto blocked = dyn_cast<BlockedAttr>(layout))
    return blocked.getThreads();
  if (auto mma = dyn_cast<MmaLayoutAttr>(layout))
    return kWarp * mma.getWarps();
  return 0;
}

/// Every tile of a kernel with `tile_gpu.threads` has a layout for as many.
static LogicalResult verifyThreads(KernelOp kernel, int64_t threads) {
  WalkResult result = kernel.walk([&](Operation *op) -> WalkResult {
    for (Type type : op->getResultTypes()) {
      auto tile = dyn_cast<TileType>(type);
      if (!tile)
        continue;
      if (!tile.getLayout())
        return op->emitOpError("makes ")
               << tile << " without layout, but its kernel has "
               << kThreadsAttr;
      int64_t own = threadsOf(tile.getLayout());
      if (own && own != threads)
        return op->emitOpError("makes ")
               << tile << " of " << own << " threads, but its kernel has "
               << threads;
    }
    return success();
  });
  return failure(result.wasInterrupted());
}

LogicalResult TileGPUDialect::verifyOperationAttribute(Operation *op,
                                                       NamedAttribute entry) {
  StringRef name = entry.getName();
  auto number = dyn_cast<IntegerAttr>(entry.getValue());
  auto kernel = dyn_cast<KernelOp>(op);
  bool isThreads =
      number && number.getType().isInteger(32) && isBlockSize(number.getInt());
  if (name == kThreadsAttr && kernel && isThreads)
    return verifyThreads(kernel, number.getInt());
  auto dot = dyn_cast<DotOp>(op);
  if (name == kMmaAttr && dot && isa<MmaAttr>(entry.getValue())) {
    if (isa_and_nonnull<MmaLayoutAttr>(dot.getType().getLayout()))
      return success();
    return op->emitOpError("has ")
           << name << ", but accumulates in no #tile.mma";
  }
  if ((name == kPipelineAttr && isa<scf::ForOp>(op) &&
       isa<PipelineAttr>(entry.getValue())) ||
      (name == kProducerAttr && kernel &&
       isa<ProducerAttr>(entry.getValue())) ||
      (name == kScratchAttr && kernel && number &&
       number.getType().isInteger(64) && number.getInt() >= 0) ||
      (name == kConsumersAttr && isa<scf::IfOp>(op) && isThreads))
    return success();
  return op->emitError("attribute `")
         << name << "` cannot be " << entry.getValue() << " on "
         << op->getName();
}
