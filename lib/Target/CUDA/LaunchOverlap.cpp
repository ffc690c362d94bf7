//===- LaunchOverlap.cpp - which launches may begin early -----------------===//

#include "lib/Target/CUDA/LaunchOverlap.h"
#include "dialects/Interfaces/LaunchOverlap.h"
#include "dialects/RT/RTOps.h"
#include "dialects/Tile/TileOps.h"
#include "mlir/IR/SymbolTable.h"
#include "nsa/Artifact/TrainingContract.h"

using namespace mlir;
using namespace nsa;

/// The memory of a value: its tensors, or a buffer.
static SmallVector<const void *> getMemories(Value memory) {
  SmallVector<const void *> memories;
  for (FlatSymbolRefAttr name : rt::getTensorNames(memory))
    memories.push_back(name.getAsOpaquePointer());
  if (memories.empty())
    memories.push_back(rt::getMemoryRoot(memory).getAsOpaquePointer());
  return memories;
}

/// Whatever is no input of a launch or a matmul counts.
static SmallVector<const void *> getWritten(Operation *op) {
  SmallVector<Value> values;
  if (auto launch = dyn_cast<rt::LaunchOp>(op))
    llvm::append_range(values, launch.getOutputs());
  else if (auto gemm = dyn_cast<rt::GemmOp>(op))
    values.push_back(gemm.getOut());
  else if (!isa<rt::ViewOp, rt::FlatViewOp>(op))
    llvm::append_range(values, op->getOperands());
  SmallVector<const void *> written;
  for (Value memory : values)
    llvm::append_range(written, getMemories(memory));
  return written;
}

/// The tensors that commands of the entry write, with the first of these
/// commands; null where later ones have the tensor, too.
using Writers = llvm::DenseMap<const void *, Operation *>;
static Writers findWriters(rt::EntryOp entry) {
  Writers writers;
  entry.walk([&](Operation *op) {
    if (isa<rt::ViewOp, rt::FlatViewOp>(op))
      return;
    for (Value memory : op->getOperands())
      for (const void *part : getMemories(memory))
        if (auto found = writers.find(part); found != writers.end())
          found->second = nullptr;
    for (const void *memory : getWritten(op))
      writers.try_emplace(memory, op);
  });
  return writers;
}

/// The arguments of a launch that have not changed since the entry began, and
/// are not read once they have.
static llvm::SmallBitVector findConstants(rt::LaunchOp launch,
                                          const Writers &writers) {
  llvm::SmallBitVector constants(launch->getNumOperands());
  for (auto [index, memory] : llvm::enumerate(launch.getInputs())) {
    SmallVector<FlatSymbolRefAttr> names = rt::getTensorNames(memory);
    constants[index] =
        !names.empty() && llvm::all_of(names, [&](FlatSymbolRefAttr name) {
          auto writer = writers.find(name.getAsOpaquePointer());
          return writer == writers.end() ||
                 (writer->second && launch->isBeforeInBlock(writer->second));
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
  // What arrives while a short kernel runs: a program ends once its prefetches
  // have arrived.
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

/// Whether later launches' weights are among the arguments, unused: such
/// kernels are short.
static bool leavesMemoryIdle(tile::KernelOp kernel,
                             const llvm::SmallBitVector &constants) {
  return llvm::any_of(constants.set_bits(), [&](unsigned index) {
    return kernel.getArgument(index).use_empty();
  });
}

using LaunchedKernels = llvm::MapVector<Operation *, llvm::SmallBitVector>;

/// Finds arguments of each kernel that are written, but by commands that have
/// ended when any launch of the kernel begins: those before the last launch in
/// front that lets others begin late.
static void findSettled(rt::EntryOp entry, const SymbolTable &symbols,
                        const llvm::DenseSet<Operation *> &late,
                        LaunchedKernels &settled) {
  llvm::DenseMap<const void *, int64_t> lastWriter;
  int64_t number = 0, ended = 0;
  entry.walk([&](Operation *op) {
    ++number;
    if (auto launch = dyn_cast<rt::LaunchOp>(op)) {
      Operation *kernel = symbols.lookup(launch.getKernel());
      llvm::SmallBitVector own(launch->getNumOperands());
      for (auto [index, memory] : llvm::enumerate(launch.getInputs())) {
        own[index] = llvm::all_of(getMemories(memory), [&](const void *part) {
          return lastWriter.lookup(part) < ended;
        });
      }
      auto [known, isNew] = settled.try_emplace(kernel, own);
      if (!isNew)
        known->second &= own;
      if (late.contains(kernel))
        ended = number;
    }
    for (const void *memory : getWritten(op))
      lastWriter[memory] = number;
  });
}

void nsa::noteLaunchOverlap(ModuleOp module) {
  SymbolTable symbols(module);
  SmallVector<rt::EntryOp> entries;
  LaunchedKernels kernels, settled;
  SmallVector<rt::LaunchOp> first, all;
  for (const char *name : {training::decodeEntry, training::nextEntry}) {
    auto entry = symbols.lookup<rt::EntryOp>(name);
    if (!entry)
      continue;
    entries.push_back(entry);
    Writers writers = findWriters(entry);
    entry.walk([&](rt::LaunchOp launch) {
      Operation *kernel = symbols.lookup(launch.getKernel());
      llvm::SmallBitVector own = findConstants(launch, writers);
      auto [known, isNew] = kernels.try_emplace(kernel, own);
      if (isNew)
        first.push_back(launch);
      else
        known->second &= own;
      all.push_back(launch);
    });
  }
  Builder builder(module.getContext());
  Prefetches prefetches;
  llvm::DenseSet<Operation *> idle;
  for (auto [entry, launch] : llvm::zip_equal(kernels, first)) {
    auto &[kernel, constants] = entry;
    auto own = cast<tile::KernelOp>(kernel);
    SmallVector<int64_t> prefetched = prefetches.find(launch, own, constants);
    if (!prefetched.empty())
      kernel->setAttr(kPrefetchAttr, builder.getDenseI64ArrayAttr(prefetched));
    if (leavesMemoryIdle(own, constants))
      idle.insert(kernel);
  }
  // Short launches and those before them.
  llvm::DenseSet<Operation *> late = idle;
  for (size_t i = 1; i < all.size(); ++i)
    if (idle.contains(symbols.lookup(all[i].getKernel())))
      late.insert(symbols.lookup(all[i - 1].getKernel()));
  for (rt::EntryOp entry : entries)
    findSettled(entry, symbols, late, settled);
  for (auto &[kernel, arguments] : kernels) {
    arguments |= settled.lookup(kernel);
    SmallVector<int64_t> numbers(arguments.set_bits_begin(),
                                 arguments.set_bits_end());
    kernel->setAttr(kLaunchOverlapAttr, builder.getDenseI64ArrayAttr(numbers));
    if (late.contains(kernel))
      kernel->setAttr(kLateDependentsAttr, builder.getUnitAttr());
  }
}
