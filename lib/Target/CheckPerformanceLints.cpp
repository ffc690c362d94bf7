//===- CheckPerformanceLints.cpp - performance lints of entries -----------===//

#include "dialects/Interfaces/PerformanceLints.h"
#include "dialects/RT/RTOps.h"
#include "lib/Target/Passes.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

namespace nsa {
#define GEN_PASS_DEF_CHECKPERFORMANCELINTS
#include "lib/Target/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

static constexpr StringLiteral kAll = "all";

/// Smaller copies cost no more than the command that they are.
static constexpr uint64_t kSlowCopyBytes = 64 << 10;

/// Between a performance lint and the kernel that it is allowed in.
static constexpr char kIn = '@';

std::string nsa::checkPerformanceLintName(StringRef allowed) {
  static constexpr StringLiteral names[] = {
      kScalarLoopPath, kScalarAccessPath, kScalarProductPath, kUnfusedPath,
      kSpillPath,      kSerialisedPath,   kCopyPath,          kAll};
  auto [path, kernel] = allowed.split(kIn);
  if (!llvm::is_contained(names, path))
    return ("unknown performance lint '" + path + "'; known are " +
            llvm::join(ArrayRef(names), ", "))
        .str();
  if (!allowed.contains(kIn))
    return "";
  if (path == kCopyPath)
    return ("performance lint '" + allowed + "': copies are of no kernel")
        .str();
  if (kernel.empty() || kernel.contains(kIn))
    return ("performance lint '" + allowed +
            "': expected the name of a kernel after '" + Twine(kIn) + "'")
        .str();
  return "";
}

namespace {
struct CheckPerformanceLintsPass
    : nsa::impl::CheckPerformanceLintsBase<CheckPerformanceLintsPass> {
  using CheckPerformanceLintsBase::CheckPerformanceLintsBase;

  LogicalResult initialize(MLIRContext *context) override;
  void runOnOperation() override;

private:
  bool isAllowed(StringRef path) const {
    return llvm::is_contained(allow, path) || llvm::is_contained(allow, kAll);
  }
  bool isAllowed(StringRef path, StringRef kernel) const {
    std::string in = (Twine(kIn) + kernel).str();
    return isAllowed(path) || llvm::is_contained(allow, path.str() + in) ||
           llvm::is_contained(allow, kAll.str() + in);
  }
  /// Reports kernels that something is allowed in and that there are not.
  LogicalResult checkKernels(SymbolTable &symbols);
  /// Reports what is slow and not allowed in a command.
  LogicalResult check(rt::LaunchOp launch, SymbolTable &symbols) const;
  LogicalResult check(rt::CopyOp copy) const;
};
} // namespace

LogicalResult CheckPerformanceLintsPass::initialize(MLIRContext *context) {
  for (const std::string &path : allow)
    if (std::string error = checkPerformanceLintName(path); !error.empty())
      return emitError(UnknownLoc::get(context), error);
  return success();
}

LogicalResult CheckPerformanceLintsPass::checkKernels(SymbolTable &symbols) {
  for (StringRef path : allow) {
    auto [name, kernel] = path.split(kIn);
    if (!kernel.empty() && !symbols.lookup<rt::KernelOp>(kernel))
      return getOperation().emitError("performance lint '")
             << name << "' is allowed in @" << kernel
             << ", but there is no such kernel";
  }
  return success();
}

/// Whether memory is of a tensor that training changes.
static bool isTrained(Value memory, SymbolTable &symbols) {
  return llvm::any_of(rt::getTensorNames(memory), [&](FlatSymbolRefAttr name) {
    auto tensor = symbols.lookup<rt::TensorOp>(name.getValue());
    return tensor &&
           (tensor.getRole() == rt::TensorRole::Parameter ||
            tensor.getRole() == rt::TensorRole::Gradient || tensor.getState());
  });
}

static bool isTrainingEntry(rt::EntryOp entry, SymbolTable &symbols) {
  return llvm::any_of(rt::getCommands(entry),
                      [&](rt::CommandOpInterface command) {
                        SmallVector<Value> writes;
                        command.getWrites(writes);
                        return !isa<rt::InitializeOp>(command) &&
                               llvm::any_of(writes, [&](Value memory) {
                                 return isTrained(memory, symbols);
                               });
                      });
}

LogicalResult CheckPerformanceLintsPass::check(rt::LaunchOp launch,
                                               SymbolTable &symbols) const {
  auto kernel = symbols.lookup<rt::KernelOp>(launch.getKernel());
  if (!kernel || !kernel.getPerformanceLints())
    return success();
  for (auto path : kernel.getPerformanceLints()->getAsValueRange<StringAttr>())
    if (!isAllowed(path, launch.getKernel()))
      return launch.emitError("performance lint '")
             << path << "' in kernel " << launch.getKernelAttr()
             << "; allow with --allow-slow-path=" << path << " or, only there, "
             << path << kIn << launch.getKernel();
  return success();
}

LogicalResult CheckPerformanceLintsPass::check(rt::CopyOp copy) const {
  uint64_t bytes = rt::getByteSize(cast<MemRefType>(copy.getOut().getType()));
  if (bytes < kSlowCopyBytes || isAllowed(kCopyPath))
    return success();
  return copy.emitError("performance lint '")
         << kCopyPath << "' of " << bytes
         << " bytes; allow with --allow-slow-path=" << kCopyPath;
}

void CheckPerformanceLintsPass::runOnOperation() {
  SymbolTable symbols(getOperation());
  if (failed(checkKernels(symbols)))
    return signalPassFailure();
  // A kernel or source line is reported once, however many entries share it.
  llvm::SetVector<std::pair<Attribute, Attribute>> reported;
  for (auto entry : getOperation().getOps<rt::EntryOp>()) {
    if (!isTrainingEntry(entry, symbols))
      continue;
    for (rt::CommandOpInterface command : rt::getCommands(entry)) {
      auto launch = dyn_cast<rt::LaunchOp>(*command);
      auto copy = dyn_cast<rt::CopyOp>(*command);
      Attribute kernel = launch ? launch.getKernelAttr() : Attribute();
      Attribute location = launch ? Attribute() : command->getLoc();
      if ((!launch && !copy) || !reported.insert({kernel, location}))
        continue;
      if (failed(launch ? check(launch, symbols) : check(copy)))
        signalPassFailure();
    }
  }
  markAllAnalysesPreserved();
}
