//===- LaunchOverlap.cpp - which launches may begin early -----------------===//

#include "lib/Target/CUDA/LaunchOverlap.h"
#include "dialects/Interfaces/LaunchOverlap.h"
#include "dialects/RT/RTOps.h"
#include "dialects/Tile/TileOps.h"
#include "mlir/IR/SymbolTable.h"
#include "nsa/Artifact/TrainingContract.h"

using namespace mlir;
using namespace nsa;

/// The tensors that commands of the entry write. Whatever is no input of a
/// launch or a matmul counts.
static llvm::DenseSet<Attribute> findWritten(rt::EntryOp entry) {
  llvm::DenseSet<Attribute> written;
  auto note = [&](ValueRange memories) {
    for (Value memory : memories)
      for (FlatSymbolRefAttr name : rt::getTensorNames(memory))
        written.insert(name);
  };
  entry.walk([&](Operation *op) {
    if (auto launch = dyn_cast<rt::LaunchOp>(op))
      note(launch.getOutputs());
    else if (auto gemm = dyn_cast<rt::GemmOp>(op))
      note(gemm.getOut());
    else if (!isa<rt::ViewOp, rt::FlatViewOp>(op))
      note(op->getOperands());
  });
  return written;
}

/// The arguments of a launch that stay as they are while the entry runs.
static llvm::SmallBitVector
findConstants(rt::LaunchOp launch, const llvm::DenseSet<Attribute> &written) {
  llvm::SmallBitVector constants(launch->getNumOperands());
  for (auto [index, memory] : llvm::enumerate(launch.getInputs())) {
    SmallVector<FlatSymbolRefAttr> names = rt::getTensorNames(memory);
    constants[index] =
        !names.empty() && llvm::none_of(names, [&](FlatSymbolRefAttr name) {
          return written.contains(name);
        });
  }
  return constants;
}

namespace {
/// Shares out what launches ask for of the weights of later ones.
class Prefetches {
public:
  /// What a kernel prefetches, of which `launch` is the first: arguments that
  /// it does not use, where each begins, and bytes.
  SmallVector<int64_t> find(rt::LaunchOp launch, tile::KernelOp kernel,
                            const llvm::SmallBitVector &constants);

private:
  /// Bytes of each tensor that were asked for.
  llvm::DenseMap<Attribute, int64_t> known;
};
} // namespace

SmallVector<int64_t> Prefetches::find(rt::LaunchOp launch,
                                      tile::KernelOp kernel,
                                      const llvm::SmallBitVector &constants) {
  // What arrives while a short kernel runs: programs end behind what they ask
  // for.
  constexpr int64_t perLaunch = int64_t(2) << 20, most = int64_t(10) << 20;
  int64_t left = perLaunch;
  SmallVector<int64_t> found;
  for (unsigned index : constants.set_bits()) {
    BlockArgument argument = kernel.getArgument(index);
    auto type = cast<MemRefType>(argument.getType());
    if (!argument.use_empty() || !type.getLayout().isIdentity())
      continue;
    int64_t bytes = type.getNumElements() * type.getElementTypeBitWidth() / 8;
    int64_t &begin = known[rt::getTensorNames(launch.getInputs()[index])[0]];
    int64_t some = std::min({bytes, most, begin + left});
    some = (some - begin) / 16 * 16;
    if (some <= 0)
      continue;
    found.append({int64_t(index), begin, some});
    begin += some;
    left -= some;
  }
  return found;
}

void nsa::noteLaunchOverlap(ModuleOp module) {
  SymbolTable symbols(module);
  auto entry = symbols.lookup<rt::EntryOp>(training::decodeEntry);
  if (!entry)
    return;
  llvm::DenseSet<Attribute> written = findWritten(entry);
  llvm::MapVector<Operation *, llvm::SmallBitVector> kernels;
  SmallVector<rt::LaunchOp> first;
  entry.walk([&](rt::LaunchOp launch) {
    Operation *kernel = symbols.lookup(launch.getKernel());
    llvm::SmallBitVector own = findConstants(launch, written);
    auto [known, isNew] = kernels.try_emplace(kernel, own);
    if (isNew)
      first.push_back(launch);
    else
      known->second &= own;
  });
  Builder builder(module.getContext());
  Prefetches prefetches;
  for (auto [entry, launch] : llvm::zip_equal(kernels, first)) {
    auto &[kernel, constants] = entry;
    SmallVector<int64_t> numbers(constants.set_bits_begin(),
                                 constants.set_bits_end());
    kernel->setAttr(kLaunchOverlapAttr, builder.getDenseI64ArrayAttr(numbers));
    SmallVector<int64_t> prefetched =
        prefetches.find(launch, cast<tile::KernelOp>(kernel), constants);
    if (!prefetched.empty())
      kernel->setAttr(kPrefetchAttr, builder.getDenseI64ArrayAttr(prefetched));
  }
}
