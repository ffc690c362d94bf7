//===- TranslateTensorCopies.cpp - tensor maps, copies and mbarriers ------===//

#include "dialects/RT/RTDialect.h"
#include "mlir/IR/Matchers.h"
#include "passes/TileGPU/Passes.h"
#include "test/unit/Emulator/Translator.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::emulator;

/// Takes the parameters that are tensor maps from those of the function: they
/// are known by their numbers. Only integers follow them.
LogicalResult Translator::translateTensorMaps(unsigned &pointers) {
  auto maps = function->getAttrOfType<ArrayAttr>(kTensorMapsAttr);
  size_t count = maps ? maps.size() : 0;
  pointers = function.getNumArguments();
  while (pointers > 0 &&
         function.getArgument(pointers - 1).getType().isInteger(64))
    --pointers;
  unsigned end = pointers;
  if (count > pointers)
    return function.emitError("has more tensor maps than parameters");
  pointers -= unsigned(count);
  for (unsigned k = 0; k < end; ++k) {
    bool isMap =
        bool(function.getArgAttr(k, LLVM::LLVMDialect::getByValAttrName()));
    if (isMap != (k >= pointers))
      return function.emitError("parameter ")
             << k << (isMap ? " is no tensor map of " : " should be byval: ")
             << kTensorMapsAttr;
  }
  for (size_t k = 0; k < count; ++k) {
    auto attr = dyn_cast<rt::TensorMapAttr>(maps[k]);
    if (!attr || int64_t(attr.getArgument()) >= int64_t(pointers))
      return function.emitError("has no such tensor map: ") << maps[k];
    TensorMap &map = code.maps.emplace_back();
    map.argument = unsigned(attr.getArgument());
    map.elementBytes = attr.getElement().getIntOrFloatBitWidth() / 8;
    map.swizzle = unsigned(attr.getSwizzle());
    map.extents = attr.getExtents().asArrayRef().vec();
    map.strides = attr.getStrides().asArrayRef().vec();
    map.box = attr.getBox().asArrayRef().vec();
    // Narrower rows would not be dense.
    if (map.swizzle != 0 && map.swizzle != map.rowBytes())
      return function.emitError(
                 "the emulator does not know boxes narrower than "
                 "their swizzle: ")
             << attr;
    noteGranule(false, map.elementBytes);
    alias(function.getArgument(unsigned(pointers + k)),
          Regs({constant(kTensorMapBase + k * kTensorMapBytes, true)}));
  }
  return success();
}

LogicalResult Translator::translateTensorCopy(
    NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp copy) {
  // A block is a cluster: its shared memory has the same addresses in both
  // spaces. The operation's verifier knows which pointers there are.
  if (copy.getMode() != NVVM::TMALoadMode::TILE ||
      !copy.getIm2colOffsets().empty() || copy.getMulticastMask() ||
      copy.getGroup() || copy.getPredicate())
    return unknown(" of this kind");
  // The policy of createpolicy for evict_last; a GPU may refuse other numbers.
  constexpr uint64_t evictLast = 0x14F0000000000000;
  APInt hint;
  if (copy.getL2CacheHint() &&
      (!matchPattern(copy.getL2CacheHint(), m_ConstantInt(&hint)) ||
       hint != evictLast))
    return unknown(" with this cache policy");
  Regs operands = {reg(copy.getDstMem()), reg(copy.getTmaDescriptor()),
                   reg(copy.getMbar())};
  for (Value coordinate : copy.getCoordinates())
    operands.push_back(reg(coordinate));
  emit(getCopyTensor(), {}, operands).count =
      uint8_t(copy.getCoordinates().size());
  return success();
}

LogicalResult Translator::translateMbarrier() {
  Value address = op->getOperand(0);
  FailureOr<bool> shared = isShared(address);
  if (failed(shared))
    return failure();
  if (!*shared)
    return unknown(" outside of shared memory");
  auto isPlain = [](auto arrive) {
    return !arrive.getRelaxed() && arrive.getScope() == NVVM::MemScopeKind::CTA;
  };
  if (auto make = dyn_cast<NVVM::MBarrierInitOp>(op)) {
    if (make.getPredicate())
      return unknown(" with a predicate");
    emit(getMakeMbarrier(), {}, {reg(address), reg(make.getCount())});
    return success();
  }
  Regs operands = {reg(address)};
  if (auto arrive = dyn_cast<NVVM::CpAsyncMBarrierArriveOp>(op)) {
    // An arrival of its own, which the count that it was made for has.
    if (!arrive.getNoinc())
      return unknown(" that changes the count");
    emit(getArrive(), {}, operands).immediate = 1;
    return success();
  }
  if (auto arrive = dyn_cast<NVVM::MBarrierArriveExpectTxOp>(op)) {
    if (!isPlain(arrive) || arrive.getPredicate())
      return unknown(" of this kind");
    operands.push_back(reg(arrive.getTxcount()));
  } else if (auto arrive = cast<NVVM::MBarrierArriveOp>(op);
             !isPlain(arrive) || arrive.getCount()) {
    return unknown(" of this kind");
  }
  emit(getArrive(), {}, operands).count = uint16_t(operands.size() - 1);
  // Nothing is known of the state that arrivals give.
  for (Value state : op->getResults())
    emit(getUndefined(), define(state), {});
  return success();
}
