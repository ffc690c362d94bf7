//===- OutlineKernels.cpp - kernels in a module of their own --------------===//

#include "dialects/Tile/TileOps.h"
#include "lib/Target/CUDA/ArgumentAlignment.h"
#include "lib/Target/CUDA/CUDAChip.h"
#include "lib/Target/CUDA/LaunchOverlap.h"
#include "lib/Target/OutlinedKernels.h"
#include "lib/Target/Passes.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace nsa {
#define GEN_PASS_DEF_NOTEARGUMENTALIGNMENT
#define GEN_PASS_DEF_NOTELAUNCHOVERLAP
#define GEN_PASS_DEF_OUTLINEKERNELS
#include "lib/Target/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
struct NoteArgumentAlignment
    : nsa::impl::NoteArgumentAlignmentBase<NoteArgumentAlignment> {
  void runOnOperation() override { noteArgumentAlignment(getOperation()); }
};

struct NoteLaunchOverlap : nsa::impl::NoteLaunchOverlapBase<NoteLaunchOverlap> {
  void runOnOperation() override { noteLaunchOverlap(getOperation()); }
};

struct OutlineKernels : nsa::impl::OutlineKernelsBase<OutlineKernels> {
  using OutlineKernelsBase::OutlineKernelsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    const CUDAChip *target = findCUDAChip(chip);
    if (!target) {
      module.emitError("unknown chip '") << chip.getValue() << "'";
      return signalPassFailure();
    }
    if (module.getOps<tile::KernelOp>().empty())
      return markAllAnalysesPreserved();
    outlineKernels(module, target);
  }
};
} // namespace
