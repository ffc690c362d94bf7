//===- NSADialect.cpp - Native Sparse Attention dialect -------------------===//

#include "dialects/NSA/NSADialect.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/Interfaces/Extents.h"
#include "dialects/Interfaces/LaunchOverlap.h"
#include "dialects/NSA/NSAOps.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "dialects/NSA/NSADialect.cpp.inc"
#include "dialects/NSA/NSAEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/NSA/NSAAttributes.cpp.inc"

void nsa::NSADialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/NSA/NSAAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/NSA/NSAOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Attributes of kernels
//===----------------------------------------------------------------------===//

static constexpr llvm::StringRef kKernelAttrs[] = {
    nsa::kSharedBytesAttr,      nsa::kMultipliesAttr,
    nsa::kLaunchRegistersAttr,  nsa::kTensorMapsAttr,
    nsa::kMinBlocksAttr,        nsa::kProducerAttr,
    nsa::kSelectBlocksAttr,     nsa::kInPlaceAttr,
    nsa::kPerformanceLintsAttr, nsa::kExtentsAttr,
    nsa::kGridExtentsAttr,      nsa::kLaunchOverlapAttr,
    nsa::kPrefetchAttr,         nsa::kLateDependentsAttr,
    nsa::kShortcutAttr,         nsa::kScheduleAttr,
    nsa::kLastScheduleAttr,     nsa::kRefusedAttr,
    nsa::kRefusedSchedulesAttr, nsa::kStagesAttr,
    nsa::kMachineAttr};

/// Of one kernel, or of several by name.
static bool isStages(mlir::Attribute attribute) {
  if (auto names = llvm::dyn_cast<mlir::DictionaryAttr>(attribute))
    return llvm::all_of(names, [](mlir::NamedAttribute name) {
      return !llvm::isa<mlir::DictionaryAttr>(name.getValue()) &&
             isStages(name.getValue());
    });
  auto stages = llvm::dyn_cast<mlir::IntegerAttr>(attribute);
  return stages && stages.getType().isSignlessInteger(64) &&
         stages.getInt() >= 1 && stages.getInt() <= 8;
}

llvm::LogicalResult
nsa::NSADialect::verifyOperationAttribute(mlir::Operation *op,
                                          mlir::NamedAttribute attribute) {
  if (attribute.getName() == kSelectBlocksAttr) {
    auto blocks = llvm::dyn_cast<mlir::DenseI64ArrayAttr>(attribute.getValue());
    if (blocks && llvm::all_of(blocks.asArrayRef(),
                               [](int64_t block) { return block >= 0; }))
      return llvm::success();
    return op->emitError("attribute `")
           << kSelectBlocksAttr
           << "` must be an array<i64> of numbers that are at least 0";
  }
  if (attribute.getName() == kStagesAttr && !isStages(attribute.getValue()))
    return op->emitError("attribute `")
           << kStagesAttr
           << "` must be a number from 1 to 8, or a dictionary of such";
  if (attribute.getName() == kMachineAttr &&
      !llvm::isa<MachineAttr>(attribute.getValue()))
    return op->emitError("attribute `")
           << kMachineAttr << "` must be a #nsa.machine";
  if (attribute.getName() == kExtentsAttr &&
      !ExtentTable::isTable(attribute.getValue()))
    return op->emitError("attribute `")
           << kExtentsAttr
           << "` must be a list of numbers and maps of two symbols";
  if (attribute.getName() == kGridExtentsAttr) {
    auto maps = llvm::dyn_cast<mlir::ArrayAttr>(attribute.getValue());
    if (!maps || maps.size() != 3 || !llvm::all_of(maps, isExtentMap))
      return op->emitError("attribute `")
             << kGridExtentsAttr << "` must be three maps of two symbols";
  }
  if (llvm::is_contained(kKernelAttrs, attribute.getName().getValue()))
    return llvm::success();
  return refuseAttribute(op, attribute, kKernelAttrs);
}

llvm::LogicalResult nsa::NSADialect::verifyRegionArgAttribute(
    mlir::Operation *op, unsigned, unsigned, mlir::NamedAttribute attribute) {
  if (attribute.getName() == kAlignmentAttr)
    return llvm::success();
  return refuseAttribute(op, attribute, {kAlignmentAttr});
}

llvm::LogicalResult nsa::NSADialect::verifyRegionResultAttribute(
    mlir::Operation *op, unsigned, unsigned, mlir::NamedAttribute attribute) {
  return refuseAttribute(op, attribute);
}
