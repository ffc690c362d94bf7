//===- VerifyPhase.cpp - what may no longer be there ----------------------===//
//
// Operations are judged by the names of their dialects, so that the verifier
// of every phase needs none of the later dialects.
//
//===----------------------------------------------------------------------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "passes/Graph/Passes.h"

#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringSet.h"

#define DEBUG_TYPE "nsa-verify-phase"

namespace nsa {
#define GEN_PASS_DEF_REQUIREPHASE
#define GEN_PASS_DEF_VERIFYPHASE
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {

/// The operations that a phase allows, by dialect or by full name.
struct AllowedOps {
  SmallVector<StringRef> inFunctions;
  SmallVector<StringRef> inKernels;
};

struct VerifyPhasePass : nsa::impl::VerifyPhaseBase<VerifyPhasePass> {
  using VerifyPhaseBase::VerifyPhaseBase;

  void runOnOperation() override;
  InFlightDiagnostic report(Operation *op);
  LogicalResult checkOps(const AllowedOps &allowed);
  LogicalResult checkNoTensors();
  LogicalResult checkStaticShapes();
  LogicalResult checkNoTrainingMarks();
  LogicalResult checkPersistentTensors();
  LogicalResult checkPlanned();
  LogicalResult checkStages();
};

} // namespace

StringRef nsa::getPhaseName(Phase phase) {
  switch (phase) {
  case Phase::Precision:
    return "precision";
  case Phase::Gradient:
    return "gradient";
  case Phase::Optimizer:
    return "optimizer";
  case Phase::Kernel:
    return "kernel";
  case Phase::Buffer:
    return "buffer";
  case Phase::Schedule:
    return "schedule";
  case Phase::Collective:
    return "collective";
  case Phase::Plan:
    return "plan";
  case Phase::Layout:
    return "layout";
  case Phase::NVVM:
    return "nvvm";
  case Phase::Binary:
    return "binary";
  }
  llvm_unreachable("unknown phase");
}

static AllowedOps getAllowedOps(Phase phase) {
  switch (phase) {
  case Phase::Precision:
  case Phase::Gradient:
  case Phase::Optimizer:
    return {{"builtin.module", "func", "nsa", "nn"}, {}};
  case Phase::Kernel:
    return {{"builtin.module",
             "func",
             "tile.kernel",
             "tile.launch",
             "nn.matmul",
             "nn.batch_matmul",
             "nn.split_heads",
             "nn.merge_heads",
             "nn.recompute_barrier",
             "nn.fill",
             "nn.split",
             "nn.concat",
             "nn.flatten",
             "nn.unflatten",
             "nn.all_reduce",
             "nn.slice_shard",
             "nn.all_gather",
             "nn.gather_sequence",
             "nn.reduce_scatter_sequence",
             "nn.gather_halo",
             "nn.reduce_scatter_halo"},
            {"tile", "arith", "math", "scf"}};
  case Phase::Buffer:
  case Phase::Schedule:
  case Phase::Collective:
  case Phase::Plan:
    return {{"builtin.module", "rt", "tile.kernel"},
            {"tile", "arith", "math", "scf"}};
  case Phase::Layout:
    return {{"builtin.module", "rt", "tile.kernel"},
            {"tile", "tile_gpu.alloc", "tile_gpu.async_copy",
             "tile_gpu.local_store", "tile_gpu.local_view", "tile_gpu.warp_if",
             "tile_gpu.yield", "arith", "math", "scf"}};
  case Phase::NVVM:
    return {{"builtin.module", "rt", "gpu.module", "llvm", "nvvm"}, {}};
  case Phase::Binary:
    return {{"builtin.module", "rt"}, {}};
  }
  llvm_unreachable("unknown phase");
}

static bool isKernel(Operation *op) {
  return op->getName().getStringRef() == "tile.kernel";
}

InFlightDiagnostic VerifyPhasePass::report(Operation *op) {
  return op->emitError("after phase ")
         << getPhaseName(phase) << ", `" << op->getName() << "` ";
}

/// Calls `visit` for each operation that is not allowed, with where it stands,
/// "module", "function" or "kernel".
static void
walkForeignOps(ModuleOp module, const AllowedOps &allowed,
               function_ref<void(Operation *, StringRef where)> visit) {
  auto check = [&](Operation *op, ArrayRef<StringRef> names, StringRef where) {
    if (!llvm::is_contained(names, op->getName().getDialectNamespace()) &&
        !llvm::is_contained(names, op->getName().getStringRef()))
      visit(op, where);
  };
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    bool atTop = isa_and_nonnull<ModuleOp>(op->getParentOp());
    check(op, allowed.inFunctions, atTop ? "module" : "function");
    if (!isKernel(op))
      return WalkResult::advance();
    op->walk([&](Operation *inner) {
      if (inner != op)
        check(inner, allowed.inKernels, "kernel");
    });
    return WalkResult::skip();
  });
}

LogicalResult VerifyPhasePass::checkOps(const AllowedOps &allowed) {
  bool ok = true;
  walkForeignOps(getOperation(), allowed, [&](Operation *op, StringRef where) {
    report(op) << "may no longer be in a " << where;
    ok = false;
  });
  return success(ok);
}

/// Calls `check` with every operation outside kernels and the types of its
/// operands, results and block arguments.
static void walkTypes(ModuleOp module,
                      function_ref<void(Operation *, Type)> check) {
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (isKernel(op))
      return WalkResult::skip();
    for (Type type : op->getResultTypes())
      check(op, type);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (Type type : block.getArgumentTypes())
          check(op, type);
    return WalkResult::advance();
  });
}

LogicalResult VerifyPhasePass::checkNoTensors() {
  bool ok = true;
  walkTypes(getOperation(), [&](Operation *op, Type type) {
    if (!isa<TensorType>(type))
      return;
    report(op) << "may no longer have a value of type " << type;
    ok = false;
  });
  return success(ok);
}

LogicalResult VerifyPhasePass::checkStaticShapes() {
  bool ok = true;
  walkTypes(getOperation(), [&](Operation *op, Type type) {
    auto shaped = dyn_cast<ShapedType>(type);
    if (!shaped || (shaped.hasRank() && shaped.hasStaticShape()))
      return;
    report(op) << "has a value of type " << type << " without a static shape";
    ok = false;
  });
  return success(ok);
}

LogicalResult VerifyPhasePass::checkNoTrainingMarks() {
  bool ok = true;
  for (auto function : getOperation().getOps<func::FuncOp>()) {
    if (nn::isTrainable(function)) {
      report(function) << "may no longer be marked nn.train";
      ok = false;
    }
    for (unsigned i = 0, e = function.getNumResults(); i < e; ++i)
      if (nn::isObjective(function, i)) {
        report(function) << "may no longer have the result " << i
                         << " marked nn.objective";
        ok = false;
      }
  }
  return success(ok);
}

LogicalResult VerifyPhasePass::checkPersistentTensors() {
  struct Tensor {
    BlockArgument argument;
    StringRef role;
    Attribute init;
  };
  bool ok = true;
  llvm::StringMap<Tensor> known;
  auto check = [&](func::FuncOp function, BlockArgument argument) {
    unsigned index = argument.getArgNumber();
    std::optional<nn::ArgumentRole> role = nn::getArgumentRole(function, index);
    if (!role || *role == nn::ArgumentRole::Input)
      return;
    StringRef name = nn::getArgumentName(function, index);
    Tensor tensor{argument, stringifyArgumentRole(*role),
                  nn::getArgumentInit(function, index)};
    auto fail = [&] {
      ok = false;
      return emitError(argument.getLoc(), "argument ")
             << index << " (`" << name << "`) of function `"
             << function.getName() << "` ";
    };
    if (name.empty() || !tensor.init) {
      fail() << "is a " << tensor.role << " without "
             << (name.empty() ? "nn.name" : "nn.init");
      return;
    }
    auto [entry, isNew] = known.try_emplace(name, tensor);
    const Tensor &first = entry->second;
    if (isNew || (first.argument.getType() == argument.getType() &&
                  first.role == tensor.role && first.init == tensor.init))
      return;
    fail() << "is a " << tensor.role << " of type " << argument.getType()
           << " that starts from " << tensor.init << ", but elsewhere a "
           << first.role << " of type " << first.argument.getType()
           << " that starts from " << first.init;
  };
  for (auto function : getOperation().getOps<func::FuncOp>())
    for (BlockArgument argument : function.getBody().getArguments())
      check(function, argument);
  return success(ok);
}

/// Whether this is a tensor or buffer without its offset in memory.
static bool isUnplanned(Operation *op) {
  StringRef name = op->getName().getStringRef();
  return (name == "rt.tensor" || name == "rt.buffer") && !op->getAttr("slice");
}

LogicalResult VerifyPhasePass::checkPlanned() {
  bool ok = true;
  getOperation().walk([&](Operation *op) {
    if (!isUnplanned(op))
      return;
    report(op) << "must have a slice of a segment";
    ok = false;
  });
  return success(ok);
}

/// Each name in `nsa.stages` is a prefix of a kernel's name.
LogicalResult VerifyPhasePass::checkStages() {
  auto stages = getOperation()->getAttrOfType<DictionaryAttr>(kStagesAttr);
  if (!stages)
    return success();
  llvm::StringSet<> names;
  getOperation().walk([&](Operation *op) {
    if (isKernel(op))
      names.insert(SymbolTable::getSymbolName(op).getValue());
  });
  for (NamedAttribute each : stages) {
    StringRef wanted = each.getName().getValue();
    if (llvm::any_of(names.keys(),
                     [&](StringRef name) { return name.starts_with(wanted); }))
      continue;
    return getOperation().emitError("attribute `")
           << kStagesAttr << "`: no kernel's name begins with '" << wanted
           << "'; nsa-compile --report names them";
  }
  return success();
}

void VerifyPhasePass::runOnOperation() {
  bool ok = succeeded(checkOps(getAllowedOps(phase)));
  if (phase <= Phase::Kernel)
    ok &= succeeded(checkStaticShapes());
  if (phase >= Phase::Gradient)
    ok &= succeeded(checkNoTrainingMarks());
  if (phase == Phase::Optimizer)
    ok &= succeeded(checkPersistentTensors());
  if (phase == Phase::Kernel)
    ok &= succeeded(checkStages());
  if (phase >= Phase::Buffer)
    ok &= succeeded(checkNoTensors());
  if (phase >= Phase::Plan)
    ok &= succeeded(checkPlanned());
  if (!ok)
    signalPassFailure();
  markAllAnalysesPreserved();
}

//===----------------------------------------------------------------------===//
// RequirePhase
//===----------------------------------------------------------------------===//

namespace {
struct RequirePhasePass : nsa::impl::RequirePhaseBase<RequirePhasePass> {
  using RequirePhaseBase::RequirePhaseBase;

  void runOnOperation() override;
};
} // namespace

/// Whether a function returns gradients, which an optimizer makes an update of.
static bool returnsGradients(func::FuncOp function) {
  return llvm::any_of(llvm::seq(function.getNumResults()), [&](unsigned i) {
    return nn::getResultName(function, i).starts_with(training::gradientPrefix);
  });
}

/// Whether the phase `after` would have removed an operation of a dialect that
/// it allows: the text of a model, a function that is to be differentiated, or
/// gradients without an update.
static bool isLeft(Operation *op, Phase after) {
  auto function = dyn_cast<func::FuncOp>(op);
  return op->getName().getStringRef() == "nn.module" ||
         (function && after >= Phase::Gradient && nn::isTrainable(function)) ||
         (function && after == Phase::Optimizer && returnsGradients(function));
}

void RequirePhasePass::runOnOperation() {
  markAllAnalysesPreserved();
  Operation *first = nullptr;
  auto note = [&](Operation *op) { first = first ? first : op; };
  walkForeignOps(getOperation(), getAllowedOps(after),
                 [&](Operation *op, StringRef) { note(op); });
  for (Operation &op : *getOperation().getBody())
    if (isLeft(&op, after))
      note(&op);
  if (!first && after >= Phase::Plan)
    getOperation().walk([&](Operation *op) {
      if (isUnplanned(op))
        note(op);
    });
  if (!first)
    return;
  first->emitError("`") << first->getName() << "` is nothing that phase "
                        << getPhaseName(phase) << " takes; run nsa-phase-"
                        << getPhaseName(after) << " first";
  signalPassFailure();
}
