//===- Machine.cpp - what a module says before it is cut ------------------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/Interfaces/Extents.h"
#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/Passes.h"

namespace nsa {
#define GEN_PASS_DEF_NOTECOMPRESSEDEXTENTS
#define GEN_PASS_DEF_SETMACHINE
#include "passes/Kernels/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
struct SetMachine : nsa::impl::SetMachineBase<SetMachine> {
  using SetMachineBase::SetMachineBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    module->removeAttr(kMachineAttr);
    if (mmaRows == 0)
      return;
    auto machine = MachineAttr::getChecked([&] { return module.emitError(); },
                                           &getContext(), int64_t(processors),
                                           int64_t(mmaRows));
    if (!machine)
      return signalPassFailure();
    module->setAttr(kMachineAttr, machine);
  }
};

struct NoteCompressedExtents
    : nsa::impl::NoteCompressedExtentsBase<NoteCompressedExtents> {
  void runOnOperation() override;
};
} // namespace

void NoteCompressedExtents::runOnOperation() {
  ModuleOp module = getOperation();
  ExtentTable table = ExtentTable::of(module);
  AffineExpr length = getAffineSymbolExpr(kSequenceExtent, module.getContext());
  for (const Extent &sequence : llvm::to_vector(table.getEntries())) {
    if (sequence.getMap().getResult(0) != length)
      continue;
    WalkResult result = module.walk([&](Operation *op) {
      for (StringRef name : {"visibility", "compressed"}) {
        auto compressed = dyn_cast_or_null<CompressedAttr>(
            op->getInherentAttr(name).value_or(Attribute()));
        if (!compressed)
          continue;
        Extent blocks = atLeast(
            floorDiv(sequence - compressed.getBlock(), compressed.getStride()) +
                1,
            0);
        if (!table.add(blocks)) {
          op->emitOpError("has ")
              << int64_t(blocks) << " blocks, which stands for something else";
          return WalkResult::interrupt();
        }
      }
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
  }
  table.writeTo(module);
}
