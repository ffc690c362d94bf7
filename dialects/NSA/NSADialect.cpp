//===- NSADialect.cpp - Native Sparse Attention dialect -------------------===//

#include "dialects/NSA/NSADialect.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/Interfaces/Extents.h"
#include "dialects/Interfaces/LaunchOverlap.h"
#include "dialects/NSA/NSAOps.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

#include "dialects/NSA/NSADialect.cpp.inc"
#include "dialects/NSA/NSAEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/NSA/NSAAttributes.cpp.inc"

/// What `nsa.schedules` says of kernels: lists of one form.
static bool isScheduleList(mlir::Attribute attribute) {
  auto list = llvm::dyn_cast<mlir::ArrayAttr>(attribute);
  return list && !list.empty() &&
         llvm::all_of(list, llvm::IsaPred<nsa::ScheduleAttr>);
}

namespace {
/// Lists of schedules are long.
struct ScheduleAliases : mlir::OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;

  AliasResult getAlias(mlir::Attribute attribute,
                       llvm::raw_ostream &os) const override {
    auto lists = llvm::dyn_cast<mlir::DictionaryAttr>(attribute);
    if (!lists || lists.empty() ||
        !llvm::all_of(lists, [](mlir::NamedAttribute each) {
          return isScheduleList(each.getValue());
        }))
      return AliasResult::NoAlias;
    os << "schedules";
    return AliasResult::OverridableAlias;
  }
};
} // namespace

void nsa::NSADialect::initialize() {
  addInterfaces<ScheduleAliases>();
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
    nsa::kMachineAttr,          nsa::kSchedulesAttr};

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

static llvm::LogicalResult verifySchedules(mlir::Operation *op,
                                           mlir::Attribute attribute) {
  auto fail = [&] {
    return op->emitError("attribute `") << nsa::kSchedulesAttr << "` ";
  };
  auto lists = llvm::dyn_cast<mlir::DictionaryAttr>(attribute);
  if (!lists)
    return fail() << "must be a dictionary of lists of #nsa.schedule";
  for (mlir::NamedAttribute each : lists) {
    if (!nsa::symbolizeAttentionKernel(each.getName()))
      return fail() << "names " << each.getName() << "; kernels are "
                    << llvm::join(
                           llvm::map_range(
                               llvm::seq<uint32_t>(
                                   nsa::getMaxEnumValForAttentionKernel() + 1),
                               [](uint32_t kernel) {
                                 return nsa::stringifyAttentionKernel(
                                            nsa::AttentionKernel(kernel))
                                     .str();
                               }),
                           ", ");
    if (!isScheduleList(each.getValue()))
      return fail() << "of " << each.getName()
                    << " must be a list of #nsa.schedule";
    auto list = llvm::cast<mlir::ArrayAttr>(each.getValue())
                    .getAsRange<nsa::ScheduleAttr>();
    for (nsa::ScheduleAttr schedule : list)
      if (schedule.getForm() != (*list.begin()).getForm())
        return fail() << "of " << each.getName() << " has the forms "
                      << stringifySelectionForm((*list.begin()).getForm())
                      << " and " << stringifySelectionForm(schedule.getForm());
  }
  return llvm::success();
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
  if (attribute.getName() == kSchedulesAttr)
    return verifySchedules(op, attribute.getValue());
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
